"""What happens to a topic and to its rules while a round runs: against a real broker, with tasks in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import Cluster
from chronik.client.records import OutgoingRecord
from chronik.pipeline.landing.settings import LandingSettings, Wishes
from chronik.pipeline.landing.task import run_task
from chronik.pipeline.landing.topic import Round, RoundDone, TopicLanding
from chronik.pipeline.tables.columns import Kind
from chronik.pipeline.tables.committer import TableDiffers
from chronik.pipeline.tables.storage import dead_letters_uri, table_uri
from chronik.testing import Broker
from tests.pipeline.landing_rows import JournalledTopic, positions


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[Cluster]:
    with chronik_broker.cluster() as cluster:
        yield cluster


@pytest.fixture
def topic(chronik_broker: Broker, chronik_topic: str) -> JournalledTopic:
    return JournalledTopic(chronik_broker, chronik_topic)


class Landed:
    """Rounds of one topic into a folder of the test's own, and what is then in its tables."""

    def __init__(self, topic: JournalledTopic, cluster: Cluster, folder: Path) -> None:
        self._topic, self._cluster, self.root = topic, cluster, str(folder)

    def landing(self, kind: Kind = Kind.DECODED, **options: Any) -> TopicLanding:
        settings = LandingSettings(
            self._topic.broker.bootstrap, self.root, wishes=Wishes(kind), group="lands", **options
        )
        return TopicLanding(self._topic.name, settings, self._cluster)

    @property
    def offsets(self) -> list[int]:
        return self._offsets(table_uri(self.root, self._topic.name))

    @property
    def letters(self) -> list[int]:
        return self._offsets(dead_letters_uri(self.root, self._topic.name))

    def _offsets(self, uri: str) -> list[int]:
        return [offset for _, offset, _ in positions(uri)]

    def files(self) -> list[Path]:
        return list(Path(self.root).rglob("*.parquet"))


@pytest.fixture
def tables(topic: JournalledTopic, cluster: Cluster, tmp_path: Path) -> Landed:
    return Landed(topic, cluster, tmp_path)


def has_run(round: Round) -> Round:
    while round.tasks:
        round.take([run_task(task) for task in round.tasks])
    return round


def landed(landing: TopicLanding) -> RoundDone:
    return has_run(landing.plan(1)).commit()


def sent(topic: JournalledTopic, *values: bytes) -> None:
    topic.send([OutgoingRecord(value, partition=0) for value in values])


# A topic that is deleted


def test_records_of_a_topic_that_was_created_again_while_it_was_read_do_not_land(
    topic: JournalledTopic, tables: Landed, cluster: Cluster
) -> None:
    sent(topic, b'{"v": "old"}', b"bad")
    landing = tables.landing()
    round = landing.plan(1)
    delete_topics(cluster, [topic.name])
    create_topics(cluster, [NewTopic(topic.name, 1)])
    sent(topic, b'{"v": "new"}', b"worse")
    has_run(round)
    assert tables.files()
    with pytest.raises(TableDiffers, match=f"topic {topic.name} was deleted and created again"):
        round.commit()
    assert tables.offsets == []
    assert tables.letters == []
    assert not tables.files(), "what was read is of no use to anybody"


def test_records_of_a_topic_that_was_deleted_while_it_was_read_do_not_land(
    topic: JournalledTopic, tables: Landed, cluster: Cluster
) -> None:
    sent(topic, b'{"v": "old"}')
    round = has_run(tables.landing().plan(1))
    delete_topics(cluster, [topic.name])
    with pytest.raises(TableDiffers, match=f"topic {topic.name} was deleted"):
        round.commit()
    assert tables.offsets == []
    assert not tables.files()
