"""Secret access keys and session tokens occur in nothing that landing, queries and maintenance on S3 write or show.

Searched are the output of commands, logs, Spark's plans and event log, the objects of the tables in both formats, the
Iceberg catalog, and the broker's files, which contain the pipeline's journal and with it what the console shows.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import fs

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.query import landed_dataframe
from chronik.pipeline.query.spark_catalog import register_tables
from chronik.pipeline.query.sql import query
from chronik.pipeline.tables.storage import TableStorage
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.object_store.shared_spark import keep_session, run_in_process
from tests.pipeline.seaweedfs import SECRET_ACCESS_KEY, S3Server, request_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"
WRONG_SECRET = "canary-of-a-wrong-secret"
WRONG_TOKEN = "canary-of-a-wrong-session-token"


def list_encodings(secret: str) -> list[bytes]:
    """Return the secret as text, in UTF-16, in hexadecimal, and in Base64 at every position of a longer text."""
    found = [secret.encode(), secret.encode("utf-16-le"), secret.encode().hex().encode()]
    for shift, first in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(b"x" * shift + secret.encode())
        found.append(encoded[first : (shift + len(secret)) * 8 // 6])
    return found


def list_secrets(options: dict[str, str]) -> list[str]:
    """Return the secrets in storage options. The parts of a session token are secrets of their own, in cut messages."""
    token = options.get("aws_session_token", "")
    return [options["aws_secret_access_key"], *([token, *token.split(".")[1:]] if token else [])]


def find_secret(written: dict[str, bytes], options: dict[str, str]) -> list[str]:
    """Return the names of the texts that contain a secret in any encoding."""
    secrets = [SECRET_ACCESS_KEY, WRONG_SECRET, WRONG_TOKEN, *list_secrets(options)]
    encodings = [each for secret in secrets for each in list_encodings(secret)]
    return [name for name, content in written.items() if any(each in content for each in encodings)]


@pytest.fixture
def event_log(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The file of an event log of the shared Spark session."""
    context = spark.sparkContext
    assert context._jvm is not None
    jvm: Any = context._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    for name in ("compress", "rolling.enabled"):
        conf.set(f"spark.eventLog.{name}", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "canary", jvm.scala.Option.empty(), jvm.java.net.URI(tmp_path.as_uri()), conf
    )
    listener.start()
    java_context = context._jsc.sc()
    java_context.addSparkListener(listener)
    path = tmp_path / "canary.inprogress"
    yield path
    java_context.removeSparkListener(listener)
    listener.stop()


def read_objects(root: str, options: dict[str, str]) -> dict[str, bytes]:
    filesystem = TableStorage(root, options).filesystem
    found = {}
    for info in filesystem.get_file_info(fs.FileSelector("", recursive=True)):
        if info.type is fs.FileType.File:
            with filesystem.open_input_file(info.path) as file:
                found[info.path] = file.read()
    return found


OPTIONS = {"aws_secret_access_key": "key-of-a-session", "aws_session_token": "head.payload.signature"}


def test_encoded_secret_is_found() -> None:
    for prefix in (b"", b"x", b"xy"):
        text = base64.b64encode(prefix + b"aws_secret_access_key=" + SECRET_ACCESS_KEY.encode() + b" and more")
        assert find_secret({"plan": text}, OPTIONS) == ["plan"]
    for written in (b"token=head.payload.signature", b"token=head.payload...", b'"payload"'):
        assert find_secret({"plan": written}, OPTIONS) == ["plan"]
    assert find_secret({"plan": b"aws_secret_access_key=***"}, OPTIONS) == []


def test_secret_is_not_written_by_landing_queries_and_maintenance(
    spark: SparkSession,
    tmp_path: Path,
    chronik_broker_factory: BrokerFactory,
    s3_server: S3Server,
    s3_root: str,
    event_log: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(landed_dataframe, "SMALL_TABLE_BYTES_MAX", -1)  # with pushdown of filters
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "chronik")
    given = request_session(s3_server) if s3_server.catalog else s3_server.options  # Versity's gateway has no sessions
    assert ("aws_session_token" in given) == bool(s3_server.catalog)
    iceberg_root, catalog = f"{s3_root}-iceberg", tmp_path / "catalog.db"
    broker, written = chronik_broker_factory(), {}
    broker.create_topic(TOPIC)
    with broker.cluster() as cluster:
        values = (b"no json", *(b'{"id": %d}' % number for number in range(50)))
        Producer(cluster).send(TOPIC, [OutgoingRecord(value, partition=0) for value in values])

    def run(*words: str, succeeds: bool = True, root: str | None = s3_root) -> None:
        done = run_in_process("pipeline", *words, *(["--table-root", root] if root else []))
        assert (done.code == 0) == succeeds, done
        written[" ".join(words)] = (done.out + done.err).encode()

    with pytest.MonkeyPatch.context() as patch, keep_session(spark, patch):
        for name, value in given.items():
            patch.setenv(name.upper(), value)
        patch.setenv("CHRONIK_BOOTSTRAP_SERVER", broker.bootstrap)
        run("run", "--once", "--topics", TOPIC, "--format", "json")
        for words in ("status --json", "status"):
            run(*words.split(), root=None)
        on_iceberg = ["--catalog", f"sqlite:///{catalog}"]
        run("run", "--once", "--topics", TOPIC, "--table-format", "iceberg", *on_iceberg, root=iceberg_root)
        run("sql", "--no-server", f"SELECT * FROM `{TOPIC}`", *on_iceberg, root=iceberg_root)
        run("compact", *on_iceberg, root=iceberg_root)
        run("sql", "--no-server", "--json", f"SELECT count(*) FROM `{TOPIC}` WHERE id > 3")
        run("sql", "--no-server", f"SELECT nothing FROM `{TOPIC}`", succeeds=False)
        run("audit", "--topics", TOPIC, "--data-dir", str(broker.data_dir), "-b", broker.bootstrap)
        run("compact", "--vacuum", "--retention-hours", "0", "--pipeline-stopped")
        for words in ("dlq list", "dlq retry", "doctor --json"):
            run(*words.split())
        for name in ("aws_secret_access_key", "aws_session_token"):
            run("dlq", "list", "--storage-option", f"{name}:{given.get(name, WRONG_TOKEN)}", succeeds=False)
        wrong_values = {"aws_secret_access_key": WRONG_SECRET, "aws_session_token": WRONG_TOKEN}
        for changed in ({name: wrong_values[name]} for name in wrong_values if name in given):
            keys = {name: given[name] for name in given if name.startswith("aws_s") or name == "aws_access_key_id"}
            wrong = [f"--storage-option={name}={value}" for name, value in (keys | changed).items()]
            run("run", "--once", "--topics", TOPIC, *wrong, succeeds=False)
            run("doctor", *wrong, succeeds=False)
        statement = f"SELECT * FROM `{TOPIC}` WHERE id > 3"
        for prune in (True, False):
            frame = query(
                spark, statement, broker.bootstrap, s3_root, prune=prune, executes_once=prune, storage_options=given
            )
            frame.collect()
            written[f"plan, prune={prune}"] = frame._jdf.queryExecution().toString().encode()
        register_tables(spark, s3_root, topics=[TOPIC], storage_options=given)
        registered = spark.sql(f"DESCRIBE EXTENDED `{TOPIC}`")
        written["Spark catalog"] = str(registered.collect()).encode()
        spark.sql(f"DROP TABLE `{TOPIC}`")
    written["settings"] = str(spark.sql("SET -v").collect()).encode()
    written["log"] = "\n".join(record.getMessage() for record in caplog.records).encode()
    written["broker's log"] = broker.log.encode()
    written |= {str(path): path.read_bytes() for path in broker.data_dir.rglob("*") if path.is_file()}
    written["Iceberg catalog"] = catalog.read_bytes()
    written |= read_objects(s3_root, s3_server.options) | read_objects(iceberg_root, s3_server.options)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    written["event log"] = event_log.read_bytes()
    assert b"BatchScan chronik_landed_rows" in written["event log"], "the query with pushdown is in it"
    assert any(name.endswith(".parquet") for name in written)
    assert find_secret(written, given) == []
