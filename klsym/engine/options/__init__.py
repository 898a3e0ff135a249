"""Options of a loss: what each means, and how it reads in the loss grammar."""
