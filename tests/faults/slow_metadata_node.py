"""A broker that does not sync its metadata while a file exists, whose path is its argument.

Tests use it to observe the state before a sync, and to simulate a power failure at that moment.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(hold: Path) -> int:
    from chronik.testing import broker_process
    from chronik.wal.log import WriteAheadLog

    sync = WriteAheadLog.sync

    def sync_when_released(self: WriteAheadLog) -> None:
        while hold.exists():
            time.sleep(0.001)
        sync(self)

    WriteAheadLog.sync = sync_when_released  # type: ignore[method-assign]
    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
