"""`run`: the function behind `chronik pipeline run`, for notebooks and other programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import DEFAULT_BOOTSTRAP, ClusterClient
from chronik.errors import ConfigError
from chronik.formats.registry_client import RegistrySettings, parse_registry_settings
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.journal.journal_reporter import JournalReporter
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.journal.sample_responder import SampleResponder
from chronik.pipeline.landing.driver import LandingDriver, LandingSummary
from chronik.pipeline.landing.election import DriverElection, describe_selection
from chronik.pipeline.landing.local_runner import LOCAL_RECORDS_MAX, LandingTaskRunner, LocalFirstTaskRunner
from chronik.pipeline.landing.settings import (
    ROUND_INTERVAL_SECONDS,
    ROUND_RECORDS_MAX,
    LandingSettings,
    StartPosition,
    derive_group_name,
    parse_table_settings,
)
from chronik.pipeline.landing.topic_maintenance import start_maintenance
from chronik.pipeline.spark.masters import RETRYING_LOCAL_MASTER, resolve_master
from chronik.pipeline.table_maintenance.settings import DEFAULT_MAINTENANCE, MaintenanceOptions
from chronik.pipeline.tables.formatting import read_sample_rows_as_json
from chronik.pipeline.tables.parquet import CODEC
from chronik.pipeline.tables.storage import to_absolute_root
from chronik.pipeline.tables.values.table_schema import TableSchema, read_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_SECONDS = 30.0


def run(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    table_root: str = "tables",
    topics: Sequence[str] | None = None,
    *,
    once: bool = False,
    format: str | None = None,
    partition_by: str | None = None,
    group: str | None = None,
    round_records_max: int = ROUND_RECORDS_MAX,
    interval_s: float = ROUND_INTERVAL_SECONDS,
    allow_data_loss: bool = False,
    codec: str = CODEC,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_SECONDS,
    spark: SparkSession | None = None,
    master: str | None = None,
    schema: str | TableSchema | None = None,
    start: Mapping[str, StartPosition] | None = None,
    key_format: str | None = None,
    writer_schema: str | None = None,
    table_format: str | None = None,
    registry: RegistrySettings | str | None = None,
    maintenance: MaintenanceOptions = DEFAULT_MAINTENANCE,
    spark_settings: Mapping[str, str] | None = None,
    on_spark_start: Callable[[], None] = lambda: None,
    reporter: ProgressReporter | None = None,
    stop: threading.Event | None = None,
    standby: bool = False,
) -> LandingSummary:
    """Write the records of topics to tables: with `once`, those that exist now; otherwise, until `stop` is set.

        run("127.0.0.1:9092", "tables", ["orders"], format="json", once=True)

    Args:
        bootstrap: A broker, and the settings to connect to it.
        table_root: Directory or object store prefix of the tables.
        topics: The topics to land, or None for all with `columnar.enabled`.
        once: Whether to return when the records that exist now have landed.
        format: `raw`, `json`, `avro`, `protobuf`, `json-schema` or `auto`; None for the topic's config, else the
            existing table's format, else raw.
        partition_by: `date`, `hour` or `none`; None for the topic's config, else the existing table's, else date.
        group: Name of the pipeline and its consumer group; derived from `table_root` if None.
        round_records_max: Maximum number of records of one topic per round.
        interval_s: Time between the starts of two rounds when nothing is left to land.
        allow_data_loss: Whether to skip records that were deleted before they landed, instead of failing.
        codec: Compression codec of the Parquet files.
        storage_options: Options of the object store.
        timeout_s: How long the driver retries requests to brokers.
        spark: The Spark session to use. If None, small rounds run in this process, and a session of `master` is
            started for larger ones and stopped at the end.
        master: The Spark master of a session that is started here. If given, all rounds run on it.
        schema: The schema of the tables: a TOML or JSON file, or a list of columns such as `id bigint, name string`;
            None for the topic's config, else the existing table's, else inferred.
        key_format: Format of keys: `raw`, `json`, `avro`, `protobuf`, `json-schema` or `auto`; None for the topic's
            config, else the existing table's format, else raw.
        writer_schema: The schema of values that do not name theirs, as text.
        table_format: `delta` or `iceberg`; None for the topic's config, else the existing table's, else delta.
        registry: The schema registry, or its URL; None for that of the brokers.
        start: Where new tables start, by topic; the empty name stands for all other topics.
        maintenance: Options of the automatic maintenance of the tables.
        spark_settings: Settings of a session that is started here.
        on_spark_start: Called before a session is started here.
        reporter: Receiver of progress reports; None for the pipeline journal.
        stop: An event that ends the landing after the current round.
        standby: Whether several drivers of this pipeline run, of which one is active and the others stand by.

    Raises:
        LandingFailedError: A topic did not land (with `once`).
        SparkUnavailableError: The Spark session does not exist any more.
        ConfigError: A setting is invalid.
        ClientError: No broker responds (with `once`).
        KafkaError: A broker rejects a request (with `once`).
        JavaNotFoundError: No suitable Java was found.
        PySparkNotFoundError: PySpark is not installed.
    """
    if topics is not None and not topics:
        raise ConfigError("no topic was given; name at least one, or omit topics to land all enabled ones")
    if standby and once:
        raise ConfigError("a run with once does not stand by for other drivers: omit once or standby")
    root = to_absolute_root(table_root)
    settings = LandingSettings(
        bootstrap,
        root,
        None if topics is None else tuple(dict.fromkeys(topics)),
        parse_table_settings(format, partition_by, key_format, writer_schema, table_format),
        group or derive_group_name(root),
        round_records_max,
        interval_s,
        allow_data_loss,
        codec,
        storage_options,
        read_schema(schema) if isinstance(schema, str) else schema,
        start or {},
        parse_registry_settings(registry) if isinstance(registry, str) else registry,
        maintenance,
    )
    jobs = (
        LandingTaskRunner(spark)
        if spark is not None
        else _create_task_runner(master, spark_settings or {}, on_spark_start)
    )
    stop = stop or threading.Event()
    reporter = reporter or JournalReporter(settings.bootstrap, settings.group)
    reporter = start_maintenance(settings, jobs, reporter, stop, once=once)
    answerer = SampleResponder(
        bootstrap, settings.group, lambda topic, rows: read_sample_rows_as_json(root, topic, rows, storage_options)
    )
    election = None
    if standby:
        election = DriverElection(bootstrap, settings.group, describe_selection(root, settings.topics))
    try:
        with ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
            driver = LandingDriver(settings, cluster, jobs, reporter, stop, election=election)
            return driver.run_once() if once else driver.run()
    finally:
        if election is not None:
            election.close()
        answerer.close()
        reporter.close()
        jobs.close()


def _create_task_runner(
    master: str | None, settings: Mapping[str, str], on_start: Callable[[], None]
) -> LandingTaskRunner:
    """Return a task runner; it starts Spark immediately if a master is given, else for the first large round."""
    is_chosen = resolve_master(master) is not None

    def start() -> SparkSession:
        on_start()
        return landing_session(master, **settings)

    runner = LocalFirstTaskRunner(start, records_max=0 if is_chosen else LOCAL_RECORDS_MAX)
    if is_chosen:
        runner.start()
    return runner


def landing_session(master: str | None = None, **conf: str) -> SparkSession:
    """Start a Spark session for writing topics to tables. `conf` sets Spark settings, as in `runtime.session`.

    Raises:
        JavaNotFoundError: No suitable Java was found.
        PySparkNotFoundError: PySpark is not installed.
    """
    from chronik.pipeline.spark.runtime import session

    return session(resolve_master(master) or RETRYING_LOCAL_MASTER, **conf)
