"""Run the command line with ``python -m nearfar``."""

from nearfar.app.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
