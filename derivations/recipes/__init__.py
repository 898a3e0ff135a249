"""What trainers ship: clips, masks and samplers; distillation; discounts and critics."""
