"""The pipeline's commands with tables on S3: landing, SQL, audit, compaction, rebuild, dead-letter records, replay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.landing import run
from chronik.pipeline.landing.settings import derive_group_name
from chronik.pipeline.query import landed_dataframe
from chronik.pipeline.query.s3a import build_s3a_options, has_s3a, to_s3a_uri
from chronik.pipeline.query.sql import query
from chronik.pipeline.query.views import views
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.layout import OFFSET, PARTITION, TableKind
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.object_store.shared_spark import CommandOutput, keep_session, run_in_process
from tests.pipeline.seaweedfs import S3Server
from tests.pipeline.table_fixtures import TOPIC, TOPIC_ID, build_record_columns, commit_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 60


class S3Pipeline:
    """The commands of a pipeline with a table root on S3, whose settings are environment variables."""

    def __init__(self, broker: Broker, root: str) -> None:
        self.broker = broker
        self.root = root

    def __call__(self, *words: str, root: bool = True) -> CommandOutput:
        return run_in_process("pipeline", *words, *(["--table-root", self.root] if root else []))

    def create(self, topic: str, *values: bytes) -> None:
        """Create a topic with three partitions and these records."""
        self.broker.create_topic(topic, 3)
        self.produce(topic, *values)

    def produce(self, topic: str, *values: bytes) -> None:
        records = [OutgoingRecord(value, partition=number % 3) for number, value in enumerate(values)]
        with self.broker.cluster() as cluster:
            Producer(cluster).send(topic, records)


@pytest.fixture
def pipeline(
    spark: SparkSession, chronik_broker_factory: BrokerFactory, s3_server: S3Server, s3_root: str
) -> Iterator[S3Pipeline]:
    broker = chronik_broker_factory()
    with pytest.MonkeyPatch.context() as patch, keep_session(spark, patch):
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        patch.setenv("CHRONIK_BOOTSTRAP_SERVER", broker.bootstrap)
        yield S3Pipeline(broker, s3_root)


def documents(count: int) -> list[bytes]:
    return [b'{"id": %d, "customer": "c%d"}' % (number, number % 5) for number in range(count)]


def test_landed_topics_are_queried_audited_compacted_and_replayed(pipeline: S3Pipeline) -> None:
    raw, decoded, broker = "clicks", "orders", pipeline.broker
    pipeline.create(raw, *documents(RECORDS))
    pipeline.create(decoded, *documents(RECORDS), b"no json")
    assert "0 dead-letter records; topics: 1" in pipeline("run", "--once", "--topics", raw).out
    landing = ["run", "--once", "--topics", decoded, "--format", "json"]
    assert f"landed: {RECORDS} rows, 1 dead-letter record; topics: 1" in pipeline(*landing).out

    group = derive_group_name(pipeline.root)
    status = {
        topic["topic"]: topic for topic in pipeline("status", "--pipeline", group, "--json", root=False).json["topics"]
    }
    assert {name: (topic["lag"], topic["table"]) for name, topic in status.items()} == {
        raw: (0, f"{pipeline.root}/{raw}"),
        decoded: (0, f"{pipeline.root}/{decoded}"),
    }

    pipeline.produce(decoded, *documents(RECORDS))  # not landed yet
    counts = f"SELECT (SELECT count(*) FROM `{decoded}`) AS a, (SELECT count(id) FROM `{decoded}_cold`) AS b"
    sql = pipeline("sql", "--no-server", "--json", f"{counts}, (SELECT count(*) FROM `{raw}`) AS c")
    assert sql.json == {"a": 2 * RECORDS, "b": RECORDS, "c": RECORDS}

    audit = ["audit", "--data-dir", str(broker.data_dir), "-b", broker.bootstrap]
    audited = pipeline(*audit, "--topics", f"{raw},{decoded}", "--json").json
    assert (audited["tables"], audited["rows"], audited["findings"]) == (2, 2 * RECORDS + 1, [])

    assert f"landed: {RECORDS} rows, 0 dead-letter records" in pipeline(*landing).out
    vacuum = ["--vacuum", "--retention-hours", "0", "--pipeline-stopped"]
    compacted = {table["table"]: table for table in pipeline("compact", *vacuum, "--json").json}
    assert compacted[decoded]["files_removed"] > compacted[decoded]["files_added"] > 0
    assert compacted[decoded]["vacuumed"] >= compacted[decoded]["files_removed"]
    assert compacted.keys() == {raw, decoded, f"{decoded}~dead_letters"}

    rebuilt = pipeline("rebuild", decoded, "--schema", "id double, customer string")
    assert rebuilt.out == f"{decoded}: {2 * RECORDS} rows rebuilt from the topic, 0 new dead-letter records\n"
    average = pipeline(
        "sql", "--no-server", "--json", f"SELECT typeof(id) AS t, avg(id) AS a FROM `{decoded}` GROUP BY 1"
    )
    assert average.json == {"t": "double", "a": (RECORDS - 1) / 2}

    letters = pipeline("dlq", "list", "--json").json
    assert (letters["count"], letters["letters"][0]["value"]) == (1, "no json")
    assert pipeline("dlq", "retry", "--json").json == [{"topic": decoded, "decoded": 0, "failing": 1, "waiting": 0}]

    replayed = pipeline("replay", "--topic", raw, "--to-topic", f"{raw}-copy", "--create", "--json").json
    assert (replayed["records"], replayed["partitions_kept"]) == (RECORDS, True)
    copies, originals = broker.records(f"{raw}-copy"), broker.records(raw)
    assert sorted((each.partition, each.value) for each in copies) == sorted(
        (each.partition, each.value) for each in originals
    )


def test_dead_letter_record_is_decoded_by_retry(pipeline: S3Pipeline) -> None:
    for kind in (TableKind.DECODED, TableKind.DEAD_LETTERS):
        place = build_dead_letters_uri if kind is TableKind.DEAD_LETTERS else table_uri
        table = open_or_create_table(place(pipeline.root, TOPIC), TableSpec(TOPIC, TOPIC_ID, kind))
        offset = 0 if kind is TableKind.DEAD_LETTERS else 1
        commit_rows(table, 0, build_record_columns([offset], [b'{"id": %d}' % offset]))
    assert pipeline("dlq", "list", "--json").json["count"] == 1
    assert pipeline("dlq", "retry", "--json").json == [{"topic": TOPIC, "decoded": 1, "failing": 0, "waiting": 0}]
    assert pipeline("dlq", "list").out == "no dead-letter records\n"
    rows = pa.Table.from_batches(list(scan(open_table(table_uri(pipeline.root, TOPIC)).files(), ["id"])))
    assert sorted(rows["id"].to_pylist()) == [0, 1]


def test_concurrent_drivers_land_each_record_once(spark: SparkSession, pipeline: S3Pipeline) -> None:
    pipeline.create(TOPIC, *documents(RECORDS))
    errors: list[BaseException] = []

    def land() -> None:
        try:
            run(
                pipeline.broker.bootstrap,
                pipeline.root,
                [TOPIC],
                once=True,
                round_records_max=RECORDS // 5,
                spark=spark,
                reporter=ProgressReporter(),
            )
        except BaseException as error:
            errors.append(error)

    drivers = [Thread(target=land) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert errors == []
    table = open_table(table_uri(pipeline.root, TOPIC))
    rows = pa.Table.from_batches(list(scan(table.files(), [PARTITION, OFFSET])))
    found = sorted(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    assert found == [(partition, offset) for partition in range(3) for offset in range(RECORDS // 3)]


def test_large_table_is_read_with_filter_pushdown(
    spark: SparkSession, pipeline: S3Pipeline, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landed_dataframe, "SMALL_TABLE_BYTES_MAX", -1)
    pipeline.create(TOPIC, *documents(RECORDS))
    options = s3_server.options
    run(
        pipeline.broker.bootstrap,
        pipeline.root,
        [TOPIC],
        once=True,
        format="json",
        storage_options=options,
        spark=spark,
        reporter=ProgressReporter(),
    )
    statement = f"SELECT count(*) FROM `{TOPIC}` WHERE _offset < 2 AND id >= 0 AND _date >= DATE'2020-01-01'"
    plans = []
    for executes_once in (True, False):
        frame = query(
            spark,
            statement,
            pipeline.broker.bootstrap,
            pipeline.root,
            prune=True,
            executes_once=executes_once,
            storage_options=options,
        )
        assert frame.collect()[0][0] == 6
        plans.append("BatchScan chronik_landed_rows" in frame._jdf.queryExecution().toString())
    assert plans == [True, False]
    created = views(spark, pipeline.broker.bootstrap, pipeline.root, [TOPIC], storage_options=options)
    assert f"{TOPIC}_cold" in created.names
    rows = spark.sql(f"SELECT customer, _date, _headers FROM `{TOPIC}_cold` WHERE _date IS NULL").collect()
    assert rows == []


def test_commands_report_storage_errors_in_one_line(pipeline: S3Pipeline) -> None:
    pipeline.create(TOPIC, b"x")
    missing = S3Pipeline(pipeline.broker, "s3://nothing/tables")
    cause = r"s3://nothing: the bucket does not exist at http://127.0.0.1:\d+: create it, or correct --table-root"
    landed = missing("run", "--once", "--topics", TOPIC)
    assert landed.code == 1
    assert re.search(rf"^chronik: {TOPIC}: {cause}$", landed.err, re.MULTILINE), landed.err
    for words in (["dlq", "list"], ["compact"], ["sql", "--no-server", f"SELECT * FROM `{TOPIC}`"]):
        failed = missing(*words)
        assert failed.code == 1
        assert re.search(rf"^chronik: {cause}$", failed.err, re.MULTILINE), failed.err


def test_doctor_checks_root_on_s3(pipeline: S3Pipeline) -> None:
    [finding] = [each for each in pipeline("doctor", "--json").json["findings"] if each["what"] == "table root"]
    assert finding == {
        "what": "table root",
        "state": "good",
        "says": f"{pipeline.root} is writable, with conditional writes (0 tables)",
        "do": "",
    }
    failed = S3Pipeline(pipeline.broker, "s3://nothing/tables")("doctor")
    assert failed.code == 1
    assert re.search(r"WRONG  s3://nothing: the bucket does not exist", failed.out)


def test_s3a_settings_are_derived_from_storage_options(spark: SparkSession) -> None:
    assert has_s3a(spark) is False, "PySpark does not contain it"
    assert to_s3a_uri("s3://lake/tables/orders") == "s3a://lake/tables/orders"
    options = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "aws_region": "eu-west-1"}
    assert build_s3a_options(options | {"aws_endpoint_url": "http://127.0.0.1:8333"}) == {
        "fs.s3a.access.key": "id",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.endpoint": "http://127.0.0.1:8333",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    assert build_s3a_options({"aws_force_credential_load": "true"}) == {}
