"""Kafka Streams with exactly_once_v2: a stateful word count through an intermediate topic, while the application and
brokers are killed in turn. Every count is exact, and no wrong count was ever visible.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.run_size import SEED, sized

from .brokers import Brokers, running_brokers
from .streams import COUNTS, LINES, PARTITIONS, StreamsApplication, WordCounts, require_streams

pytestmark = pytest.mark.xdist_group("cluster")

KILLS = sized(3, 20)
LINES_PER_KILL = 300
WORDS_PER_LINE = 8
VOCABULARY = [f"word{number}" for number in range(40)]
WRITE_SECONDS_MAX = 60.0
COUNT_SECONDS_MAX = 180.0
"""Time limit for a JVM start, sessions, elections and a state restore on a busy machine."""

Summary = Callable[[str, object], None]


def test_kafka_streams_counts_exactly_once_under_kills(tmp_path: Path, record_property: Summary) -> None:
    require_streams()
    rng = random.Random(f"streams {SEED}")
    expected: Counter[str] = Counter()
    with running_brokers(tmp_path / "brokers") as brokers:
        make_topics(brokers)
        writer = Writer(brokers.bootstrap, rng)
        with (
            StreamsApplication(brokers.bootstrap, tmp_path) as application,
            closing(WordCounts(brokers.bootstrap)) as counted,
        ):
            for number in range(KILLS):
                expected += writer.write()
                # In the middle of the work: pending records are lost or repeated.
                counted.wait_for(counted.words + LINES_PER_KILL, application, COUNT_SECONDS_MAX)
                inject_kill(number, brokers, application, rng, lambda: counted.poll(0.5))
                counted.wait_for(counted.words + LINES_PER_KILL, application, COUNT_SECONDS_MAX)
            writer.wait_until_written()
            counted.wait_for(expected.total(), application, COUNT_SECONDS_MAX)
            counted.check(expected)
        for address in brokers.addresses:
            check_counts(address, expected)
    summary = f"{expected.total():,} words, {KILLS} kills, {application.restarts} restarts by itself"
    record_property("summary", f"streams: counted exactly once: {summary}")


def inject_kill(
    number: int, brokers: Brokers, application: StreamsApplication, rng: random.Random, meanwhile: Callable[[], None]
) -> None:
    """Kill the application, a broker, or every third time both."""
    is_application = number % 3 != 1
    if is_application:
        application.kill()
    if number % 3 != 0:
        node = rng.choice(brokers.ids)
        brokers.kill(node)
        meanwhile()
        brokers.start(node)
        brokers.wait_until_ready()
    if is_application:
        application.start()


def make_topics(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    made = admin.create_topics([NewTopic(name, PARTITIONS, 3, config=config) for name in (LINES, COUNTS)])
    for each in made.values():
        each.result()


class Writer:
    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._rng = rng

    def write(self) -> Counter[str]:
        """Write words and return the expected counts immediately."""
        written: Counter[str] = Counter()
        for number in range(LINES_PER_KILL):
            words = self._rng.choices(VOCABULARY, k=WORDS_PER_LINE)
            written.update(words)
            self._producer.produce(LINES, " ".join(words), partition=number % PARTITIONS)
        self._producer.poll(0)
        return written

    def wait_until_written(self) -> None:
        assert self._producer.flush(WRITE_SECONDS_MAX) == 0


def check_counts(address: str, expected: Counter[str]) -> None:
    """Read all counts from the beginning through one node."""
    with closing(WordCounts(address)) as counted:
        while counted.words < expected.total():
            before = counted.words
            counted.poll(10.0)
            assert counted.words > before, f"{counted.words} of {expected.total()} words are readable through {address}"
        counted.check(expected)
