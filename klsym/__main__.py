"""`python -m klsym` is the command `klsym`."""

from klsym.cli import command

if __name__ == "__main__":
    raise SystemExit(command())
