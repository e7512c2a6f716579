"""``python -m nearfar``: the command line."""

from nearfar.app.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
