"""Tests of the environment checks: each problem is reported with its remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.pipeline.spark import environment_checks, installation
from chronik.pipeline.spark.environment_checks import CheckResult, CheckStatus, InstalledVersion, run_checks
from chronik.testing import Broker
from tests.pipeline.spark.test_java import create_java

GOOD = {"pyspark": "4.3.0", "pandas": "2.3.3", "pyarrow": "26.0.1", "deltalake": "1.6.6", "grpcio": "1.70.0"}


def with_packages(**changed: str | None) -> InstalledVersion:
    versions: Mapping[str, str | None] = GOOD | changed
    return versions.get


@pytest.mark.parametrize(
    ("changed", "what", "state", "says"),
    [
        ({"pyspark": None}, "pyspark", CheckStatus.ERROR, "not installed"),
        ({"pyspark": "3.5.1"}, "pyspark", CheckStatus.ERROR, "too old"),
        ({"pyspark": "4.4.0"}, "pyspark", CheckStatus.WARNING, "newer than the tested versions"),
        ({"pyspark": "4.2.0.dev3"}, "pyspark", CheckStatus.OK, "4.2.0"),
        ({"pandas": "3.0.0"}, "pandas", CheckStatus.ERROR, "not supported by pyspark"),
        ({"pandas": None}, "pandas", CheckStatus.ERROR, "not installed"),
        ({"pyarrow": None}, "pyarrow", CheckStatus.ERROR, "not installed"),
        ({"pyarrow": "11.0.0"}, "pyarrow", CheckStatus.ERROR, "older than 18"),
        ({"deltalake": None}, "deltalake", CheckStatus.ERROR, "not installed"),
        ({"deltalake": "2.0.0"}, "deltalake", CheckStatus.WARNING, "newer"),
    ],
)
def test_missing_or_unsupported_package_is_reported(
    changed: dict[str, str | None], what: str, state: CheckStatus, says: str
) -> None:
    found = {finding.what: finding for finding in run_checks(master="sc://x", installed=with_packages(**changed))}
    finding = found.pop(what)
    assert finding.state is state
    assert says in finding.says
    assert bool(finding.do) == (state is not CheckStatus.OK)
    assert {other.state for other in found.values()} == {CheckStatus.OK}


def test_missing_or_outdated_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "USUAL_DIRECTORIES", ())
    monkeypatch.setattr(installation, "find_pypi_java_home", lambda: None)
    missing = environment_checks.check_java({"PATH": ""})
    assert (missing.state, missing.says) == (CheckStatus.ERROR, "Spark needs Java 17 or newer")
    assert ".[java]" in missing.do
    old = create_java(tmp_path / "old", "11.0.2")
    assert "found only Java 11" in environment_checks.check_java({"PATH": str(old / "bin")}).says


def test_unusable_java_home_is_reported(tmp_path: Path) -> None:
    good = create_java(tmp_path / "good", "21.0.1")
    found = environment_checks.check_java({"PATH": str(good / "bin"), "JAVA_HOME": str(tmp_path / "nothing")})
    assert found.state is CheckStatus.WARNING
    assert "JAVA_HOME" in found.says


def fake_python(directory: Path, version: str) -> str:
    program = directory / "python"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.slow
def test_worker_python_version_mismatch_is_reported(tmp_path: Path) -> None:
    chosen = {"PYSPARK_PYTHON": fake_python(tmp_path, "3.8")}
    found = environment_checks.check_worker_python("spark://head:7077", chosen)
    assert found.state is CheckStatus.ERROR
    assert "workers would run Python 3.8" in found.says
    assert environment_checks.check_worker_python("local[2]", chosen).state is CheckStatus.OK
    same = {"PYSPARK_PYTHON": sys.executable}
    assert environment_checks.check_worker_python("spark://head:7077", same).state is CheckStatus.OK
    elsewhere = {"PYSPARK_PYTHON": "/opt/of/the/cluster/python"}
    assert environment_checks.check_worker_python("spark://head:7077", elsewhere).state is CheckStatus.WARNING


@pytest.mark.slow
def test_broker_check_reports_reachable_and_unreachable_broker(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        bootstrap = broker.bootstrap
        found = environment_checks.check_broker(bootstrap)
        assert (found.state, found.says) == (CheckStatus.OK, f"1 broker reachable through {bootstrap}")
    unreachable = environment_checks.check_broker(bootstrap)
    assert unreachable.state is CheckStatus.ERROR
    assert bootstrap in unreachable.says
    assert environment_checks.check_broker("no port").state is CheckStatus.ERROR


def test_table_root_check_reports_whether_root_is_writable(tmp_path: Path) -> None:
    assert environment_checks.check_table_root(str(tmp_path)).state is CheckStatus.OK
    assert environment_checks.check_table_root(str(tmp_path / "to" / "be" / "made")).state is CheckStatus.OK
    assert not (tmp_path / "to").exists()
    (tmp_path / "file").write_text("")
    assert environment_checks.check_table_root(str(tmp_path / "file")).state is CheckStatus.ERROR
    assert environment_checks.check_table_root("/proc/self/tables").state is CheckStatus.ERROR
    assert environment_checks.check_table_root("gs://lake/tables").state is CheckStatus.WARNING


def build_results(*states: CheckStatus) -> list[CheckResult]:
    return [CheckResult(f"check {number}", state, "message", "remedy") for number, state in enumerate(states)]


@pytest.mark.parametrize(
    ("states", "code", "says"),
    [
        ((CheckStatus.OK, CheckStatus.WARNING), 0, "The pipeline can run."),
        ((CheckStatus.OK, CheckStatus.ERROR, CheckStatus.ERROR), 1, "2 wrong"),
    ],
)
def test_doctor_command_prints_text_or_json(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: tuple[CheckStatus, ...],
    code: int,
    says: str,
) -> None:
    monkeypatch.setattr(environment_checks, "run_checks", lambda **_: build_results(*states))
    assert main(["pipeline", "doctor"]) == code
    printed = capsys.readouterr().out
    assert says in printed
    assert printed.count("-> remedy") == len(states)
    assert main(["pipeline", "doctor", "--json"]) == code
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["ready"] is (code == 0)
    assert [finding["state"] for finding in parsed["findings"]] == [state.value for state in states]


def test_command_reports_missing_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(environment_checks, "get_installed_version", lambda package: None)
    assert main(["pipeline", "server", "start"]) == 1
    assert "pip install '.[spark]'" in capsys.readouterr().err
