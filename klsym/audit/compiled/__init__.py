"""What is compiled of the user's code in place of it, and what that asks for as it runs."""
