"""A node program that simulates a later version, which no longer supports the first feature level."""

from __future__ import annotations

import sys

from chronik.metadata import levels

LOWEST, HIGHEST = 2, levels.HIGHEST + 2


def main() -> int:
    levels.LOWEST, levels.HIGHEST = LOWEST, HIGHEST
    from chronik.testing import broker_process

    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
