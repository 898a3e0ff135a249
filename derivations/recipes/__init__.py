"""Claims about the losses that trainers ship, about distillation, and about discounts."""
