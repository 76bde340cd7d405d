"""Streaming queries survive Python workers that are slow to start: see `chronik.pipeline.spark.worker_start`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.pipeline.spark.installation import worker_python
from tests.jvm_options import QUICK_TO_START
from tests.run_size import IS_LONG_RUN

pytestmark = pytest.mark.xdist_group("jvms")

SECONDS_MAX = 300.0
SLOW_IMPORT_SECONDS = 12
"""More than the ten seconds that Spark gives a worker to connect, and then to authenticate."""

SLOW_ONCE = f"""
import os, sys, time
from importlib.abc import MetaPathFinder
from pathlib import Path

class SlowDisk(MetaPathFinder):
    '''Delays the first import of pyspark by the first worker that Spark expects to connect.'''
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark" and os.environ.get("PYTHON_WORKER_FACTORY_PORT"):
            try:
                Path(os.environ["SLOW_ONCE"]).touch(exist_ok=False)
            except FileExistsError:
                return None
            time.sleep({SLOW_IMPORT_SECONDS})
        return None

sys.meta_path.insert(0, SlowDisk())
"""

QUERY = """
import os, sys
from chronik.pipeline.spark import runtime
if sys.argv[1] == "plain":
    runtime.worker_python = lambda: sys.executable
spark = runtime.session("local[2]", **{"spark.driver.extraJavaOptions": sys.argv[2]})
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"row": 0}
    def latestOffset(self):
        return {"row": 1}
    def partitions(self, start, end):
        return [InputPartition(0)]
    def read(self, partition):
        yield (sys.executable,)

class Source(DataSource):
    @classmethod
    def name(cls):
        return "one_row"
    def schema(self):
        return "python string"
    def streamReader(self, schema):
        return Reader()

spark.dataSource.register(Source)
stream = spark.readStream.format("one_row").load().writeStream.format("memory").queryName("rows")
running = stream.option("checkpointLocation", sys.argv[3]).start()
running.processAllAvailable()
print(*(row.python for row in spark.table("rows").collect()))
running.stop()
"""


def query(directory: Path, how: str) -> subprocess.CompletedProcess[str]:
    (directory / "sitecustomize.py").write_text(SLOW_ONCE)
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", QUERY, how, " ".join(QUICK_TO_START), str(directory / "checkpoint")],
        env=os.environ | {"PYTHONPATH": path, "SLOW_ONCE": str(directory / "slow")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_worker_that_imports_slowly_answers_query(tmp_path: Path) -> None:
    ran = query(tmp_path, "launcher")
    assert (tmp_path / "slow").exists(), "no worker was delayed"
    assert (ran.returncode, ran.stdout.split()) == (0, [sys.executable]), ran.stderr[-3000:]


@pytest.mark.skipif(not IS_LONG_RUN, reason="tests Spark itself: make long")
def test_worker_without_launcher_fails_query(tmp_path: Path) -> None:
    """Show that the delay of the test above is one that Spark by itself does not survive."""
    ran = query(tmp_path, "plain")
    assert ran.returncode != 0
    assert "Python worker failed to connect back" in ran.stderr


def test_launcher_runs_other_commands_unchanged(tmp_path: Path) -> None:
    launcher = worker_python(tmp_path / "cache with 'quotes'")
    show = "import sys; print(sys.executable, sys.argv[1:], sys.path[0] == '')"
    ran = subprocess.run([launcher, "-c", show, "a b"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{sys.executable} ['a b'] True\n"


def test_worker_connects_and_authenticates_before_it_imports_module(tmp_path: Path) -> None:
    """The module waits for a line that is sent only when the worker has authenticated."""
    (tmp_path / "waiting.py").write_text(
        "import os, sys\n"
        "assert sys.argv[1:] == ['with', 'arguments'], sys.argv\n"
        "assert sys.path[0] == os.getcwd()\n"
        "sys.stdin.readline()\n"
        "from pyspark.worker_util import get_sock_file_to_executor\n"
        "with get_sock_file_to_executor() as file:\n"
        "    file.write(file.read(5)[::-1])\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS_MAX)
        variables = {"PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": "word"}
        command = [worker_python(), "-m", "waiting", "with", "arguments"]
        with subprocess.Popen(command, cwd=tmp_path, env=os.environ | variables, stdin=subprocess.PIPE) as worker:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as jvm:
                connection.settimeout(SECONDS_MAX)
                assert jvm.read(8) == b"\0\0\0\4word"
                jvm.write(b"\0\0\0\2ok")
                jvm.flush()
                assert worker.stdin is not None
                worker.stdin.write(b"\n")
                worker.stdin.close()
                assert int.from_bytes(jvm.read(4), "big") == worker.pid
                jvm.write(b"abcde")
                jvm.flush()
                assert jvm.read(5) == b"edcba"
            assert worker.wait(SECONDS_MAX) == 0
