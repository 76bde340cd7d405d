"""A node without transaction verification, as brokers before KIP-890, so that transactions can hang; as a program."""

from __future__ import annotations

import sys


def main() -> int:
    from chronik.api import produce
    from chronik.testing import broker_process

    produce.TransactionStart.rejection_code = lambda self, image: None  # type: ignore[method-assign]
    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main())
