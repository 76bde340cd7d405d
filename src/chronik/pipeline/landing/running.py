"""`run`: what `chronik pipeline run` does, as a function for notebooks and other programs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import DEFAULT_BOOTSTRAP, Cluster
from chronik.errors import ConfigError
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.journal.answering import SampleAnswerer
from chronik.pipeline.journal.reporter import JournalReporter
from chronik.pipeline.journal.reporting import Reporter
from chronik.pipeline.landing.driver import Driver, Summary
from chronik.pipeline.landing.settings import (
    INTERVAL_SECONDS,
    ROUND_RECORDS_MAX,
    LandingSettings,
    default_group,
    wishes,
)
from chronik.pipeline.spark.masters import chosen_master
from chronik.pipeline.spark.tasks import SparkJobs
from chronik.pipeline.tables.parquet import CODEC
from chronik.pipeline.tables.sampling import sample_told
from chronik.pipeline.tables.storage import absolute_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_SECONDS = 30.0

LOCAL_MASTER = "local[*,4]"
"""Tries a task four times, as a cluster does: otherwise a local Spark gives up when one worker's process dies."""


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
    interval_s: float = INTERVAL_SECONDS,
    allow_data_loss: bool = False,
    codec: str = CODEC,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_SECONDS,
    spark: SparkSession | None = None,
    master: str | None = None,
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """Lands topics in tables: with `once` what is there now, else until `stop` is set.

        run("127.0.0.1:9092", "tables", ["orders"], format="json", once=True)

    `topics`: None for all that have `columnar.enabled`. `format` (raw, json) and `partition_by` (date, hour, none):
    None for what the topic's configs say, or the table that is there, or else raw and date. `spark`: a session that is
    there already; otherwise one of `master` is made, and ended. `timeout_s`: how long brokers that do not answer the
    driver are asked again. `reporter`: None for the journal that `chronik pipeline status` reads and `pause` writes to.

    Raises LandingFailed, SparkGone, ConfigError, ClientError, KafkaError, JavaMissing, PySparkMissing.
    """
    if topics is not None and not topics:
        raise ConfigError("no topic is named")
    root = absolute_root(table_root)
    settings = LandingSettings(
        bootstrap,
        root,
        None if topics is None else tuple(dict.fromkeys(topics)),
        wishes(format, partition_by),
        group or default_group(root),
        round_records_max,
        interval_s,
        allow_data_loss,
        codec,
        storage_options,
    )
    own = landing_session(master) if spark is None else None
    reporter = reporter or JournalReporter(settings.bootstrap, settings.group)
    answerer = SampleAnswerer(
        bootstrap, settings.group, lambda topic, rows: sample_told(root, topic, rows, storage_options)
    )
    try:
        with Cluster(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
            driver = Driver(settings, cluster, SparkJobs(own or spark), reporter, stop or threading.Event())
            return driver.run_once() if once else driver.run()
    finally:
        answerer.close()
        reporter.close()
        if own is not None:
            own.stop()


def landing_session(master: str | None = None) -> SparkSession:
    """Raises JavaMissing, PySparkMissing."""
    from chronik.pipeline.spark.runtime import session

    return session(chosen_master(master) or LOCAL_MASTER)
