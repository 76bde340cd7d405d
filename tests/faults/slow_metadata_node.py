"""A test's broker that does not sync its metadata while a file is there: so a test sees what is done before a sync, and
what a power cut takes at that moment. Its argument is the path of the file."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(hold: Path) -> int:
    from chronik.testing import broker_process
    from chronik.wal.log import WriteAheadLog

    sync = WriteAheadLog.sync

    def sync_when_let(self: WriteAheadLog) -> None:
        while hold.exists():
            time.sleep(0.001)
        sync(self)

    WriteAheadLog.sync = sync_when_let  # type: ignore[method-assign]
    return broker_process.main()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
