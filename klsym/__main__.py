"""`python -m klsym` is the command `klsym`."""

from klsym.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
