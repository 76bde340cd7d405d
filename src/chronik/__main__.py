"""Entry point of `python -m chronik`: the same as the command `chronik`."""

from __future__ import annotations

import sys

from chronik.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
