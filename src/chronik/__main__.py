"""Entry point of the command `chronik` and of `python -m chronik`."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

from chronik.cli.main import main


def run() -> None:
    """Run the command line, and exit with its exit code.

    A process that has loaded pyarrow exits without finalizing the interpreter: native threads that still run then abort
    the process in some runs, after a correct result.
    """
    code = main()
    if "pyarrow" not in sys.modules:
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
