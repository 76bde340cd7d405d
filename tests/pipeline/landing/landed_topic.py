"""A topic that tests land round by round without Spark, and the rows of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.records import OutgoingRecord
from chronik.pipeline.landing.landing_task import run_landing_task
from chronik.pipeline.landing.settings import LandingSettings, TableSettings
from chronik.pipeline.landing.topic_landing import LandingRound, RoundResult, TopicLanding
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableFormat, TopicTable
from chronik.testing import Broker
from tests.pipeline.table_fixtures import JournalledTopic, read_positions, read_rows


def in_both_formats(test: Callable[..., None]) -> Any:
    """Run a test that uses the fixture `landed` with a Delta table and with an Iceberg table."""
    return pytest.mark.parametrize("landed", list(TableFormat), indirect=True)(test)


class LandedTopic:
    """A topic, and the directory of its tables."""

    def __init__(
        self,
        topic: JournalledTopic,
        cluster: ClusterClient,
        directory: Path,
        table_format: TableFormat = TableFormat.DELTA,
    ) -> None:
        self.topic, self.cluster, self.root, self.table_format = topic, cluster, str(directory), table_format

    def send(self, *values: bytes | None, partition: int = 0) -> None:
        self.topic.send([OutgoingRecord(value, partition=partition) for value in values])

    def landing(self, **options: Any) -> TopicLanding:
        options.setdefault("table_settings", TableSettings(TableKind.DECODED))
        options["table_settings"] = replace(options["table_settings"], table_format=self.table_format)
        options.setdefault("group", "lands")
        settings = LandingSettings(self.topic.broker.bootstrap, self.root, **options)
        return TopicLanding(self.topic.name, settings, self.cluster)

    def land(self, **options: Any) -> RoundResult:
        return run_tasks(self.landing(**options).plan_next_round(1)).commit()

    @property
    def uri(self) -> str:
        return table_uri(self.root, self.topic.name)

    def open(self) -> TopicTable:
        return open_table(self.uri)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table by partition and offset, without the system columns except `_rescued`."""
        table: pa.Table = read_rows(self.open().snapshot()).sort_by(
            [("_partition", "ascending"), ("_offset", "ascending")]
        )
        names = [name for name in table.column_names if not name.startswith("_") or name == "_rescued"]
        return [
            {name: value for name, value in row.items() if value is not None} for row in table.select(names).to_pylist()
        ]

    def offsets(self) -> list[int]:
        return [offset for _, offset, _ in read_positions(self.uri)]

    def dead_letters(self) -> list[int]:
        return [offset for _, offset, _ in read_positions(build_dead_letters_uri(self.root, self.topic.name))]


def run_tasks(round: LandingRound) -> LandingRound:
    """Run the tasks of a round, and those that follow from new columns."""
    while round.tasks:
        round.add_results([run_landing_task(task) for task in round.tasks])
    return round


@contextmanager
def open_landed_topic(broker: Broker, topic: str, directory: Path, table_format: TableFormat) -> Iterator[LandedTopic]:
    """Return a topic that lands in tables of a format."""
    with broker.cluster() as cluster:
        yield LandedTopic(JournalledTopic(broker, topic), cluster, directory, table_format)
