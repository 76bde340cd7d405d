"""The exit of the `chronik` process: exit code, flushed output and exit handlers, with and without pyarrow."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, sys
from chronik import __main__
atexit.register(lambda: print("handler called"))
if {loads_pyarrow}:
    import pyarrow
__main__.main = lambda: print("result") or {code}
__main__.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("loads_pyarrow", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_process_exits_with_the_code_after_output_and_handlers(code: int, loads_pyarrow: bool) -> None:
    script = SCRIPT.format(code=code, loads_pyarrow=loads_pyarrow)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "result\nhandler called\n", "")
