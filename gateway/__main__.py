"""`python -m gateway` is the `gateway` command."""

from gateway.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
