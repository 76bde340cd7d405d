"""Attempts of a task that die, are taken for dead, come late or meet other rows than before: what is committed is there
exactly once. With our broker and with Apache Kafka's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from chronik.client.cluster import Cluster
from chronik.client.connection import Connection
from chronik.client.groups import committed_offsets, list_groups, stable_offset
from chronik.pipeline.errors import EpochDiffers
from chronik.pipeline.writing.epochs import EPOCHS_TOPIC, PARTITIONS_MIN, Epoch, check_tasks
from chronik.pipeline.writing.once import write_once
from chronik.pipeline.writing.publishing import PublishSettings
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.testing import Broker
from tests.pipeline.apache_kafka import ApacheKafka
from tests.pipeline.committed import committed_values
from tests.pipeline.jars import APACHE_KAFKA, skip_without

PARTITIONS = 2
TIMEOUT_MS = 60_000
STEPS_MAX = 200
"""Far more requests than an attempt makes."""

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
"""What a broker says to a producer whose transactional id another has taken over."""

Hook = Callable[[], None]


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    skip_without(APACHE_KAFKA)
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as broker:
        yield broker


class Target:
    """A topic of its own, and tasks that write to it."""

    def __init__(self, broker: Broker | ApacheKafka) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = f"target-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.topic, PARTITIONS)

    def write(self, epoch: Epoch, values: Sequence[str], hook: Hook | None = None) -> int:
        """`hook` is called before and after each request of this attempt."""
        HookedConnection.hook = hook
        half = (len(values) + 1) // 2
        settings = PublishSettings(self.bootstrap, self.topic)
        try:
            with self.cluster() as cluster:
                return write_once(cluster, settings, epoch, TIMEOUT_MS, map(rows, (values[:half], values[half:])))
        finally:
            HookedConnection.hook = None

    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap, client_id="test")

    def committed(self) -> list[str]:
        return [value.decode() for value in committed_values(self.bootstrap, self.topic, PARTITIONS)]


class HookedConnection(Connection):
    hook: ClassVar[Hook | None] = None

    def request(self, *arguments: Any, **named: Any) -> Any:
        self._pass()
        answer = super().request(*arguments, **named)
        self._pass()
        return answer

    def _pass(self) -> None:
        hook = type(self).hook
        if hook is not None:
            hook()


class Died(BaseException):
    """As a process that is killed: it does nothing any more, and tells nobody."""


@pytest.fixture(params=["chronik_broker", "apache_kafka"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr("chronik.client.cluster.Connection", HookedConnection)
    return Target(request.getfixturevalue(request.param))


def rows(values: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": list(values), "value": list(values)})


def some_query() -> str:
    return f"query-{uuid.uuid4().hex[:8]}"


def numbered(name: object, size: int = 10) -> list[str]:
    return [f"{name}-{number}" for number in range(size)]


def at_step(wanted: int, act: Hook) -> tuple[Hook, list[int]]:
    """A hook that acts when it is called for the so many-th time, and how often it was called."""
    called = [0]

    def hook() -> None:
        called[0] += 1
        if called[0] == wanted:
            act()

    return hook, called


def test_each_epoch_is_written_once_in_order(target: Target) -> None:
    query = some_query()
    for number in range(3):
        values = numbered(number)
        assert target.write(Epoch(query, number, 0), values) == len(values)
        assert target.write(Epoch(query, number, 0), values) == 0, "a second attempt"
    assert target.write(Epoch(query, 0, 1), numbered("other task")) == 10
    with target.cluster() as cluster:
        assert stable_offset(cluster, query, Epoch(query, 0, 1).place)  # Kafka tells nothing for a moment
        committed = committed_offsets(cluster, query)
    assert {(place.topic, place.partition): each.offset for place, each in committed.items()} == {
        (EPOCHS_TOPIC, 0): 2,
        (EPOCHS_TOPIC, 1): 0,
    }
    assert target.committed() == sorted(
        [*(each for number in range(3) for each in numbered(number)), *numbered("other task")]
    )


def test_retry_succeeds_after_attempt_dies_at_any_request(target: Target) -> None:
    expected: list[str] = []
    for step in count(1):
        assert step < STEPS_MAX
        epoch, values = Epoch(some_query(), 7, 0), numbered(step)
        expected += values

        def die() -> None:
            HookedConnection.hook = die
            raise Died

        try:
            target.write(epoch, values, at_step(step, die)[0])
        except Died:
            target.write(epoch, values)
            continue
        break
    assert step > 20, "an attempt looks, takes over, writes twice and commits"
    assert target.committed() == sorted(expected)


def test_fenced_attempt_cannot_write(target: Target) -> None:
    expected: list[str] = []
    refused, said = 0, set[ErrorCode]()
    for step in count(1):
        assert step < STEPS_MAX
        epoch, values = Epoch(some_query(), 7, 0), numbered(step)
        expected += values

        def let_another_write() -> None:
            target.write(epoch, values)  # noqa: B023

        hook, called = at_step(step, let_another_write)
        try:
            target.write(epoch, values, hook)
        except KafkaError as error:
            refused += error.code in FENCED
            said.add(error.code)
        if called[0] < step:
            break
    assert said <= set(FENCED)
    assert refused > 5, "most of the time the first had begun"
    assert target.committed() == sorted(expected)


def test_late_attempt_of_earlier_epoch_writes_nothing(target: Target) -> None:
    query = some_query()
    target.write(Epoch(query, 5, 0), numbered("five"))
    target.write(Epoch(query, 6, 0), numbered("six"))
    assert target.write(Epoch(query, 5, 0), numbered("five")) == 0
    assert target.write(Epoch(query, 4, 0), numbered("never told")) == 0
    assert target.committed() == sorted([*numbered("five"), *numbered("six")])


def test_failed_write_is_aborted_and_does_not_block_readers(target: Target) -> None:
    epoch = Epoch(some_query(), 0, 0)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(numbered("good"))
        raise OSError("the source is gone")

    with target.cluster() as cluster, pytest.raises(OSError, match="the source is gone"):
        write_once(cluster, PublishSettings(target.bootstrap, target.topic), epoch, TIMEOUT_MS, batches())
    target.write(Epoch(some_query(), 0, 0), numbered("another"))
    assert target.committed() == numbered("another"), "nobody waits until a timeout ends the first"
    assert target.write(epoch, numbered("good")) == 10


def test_task_without_rows_starts_no_transaction(target: Target) -> None:
    query = some_query()
    assert target.write(Epoch(query, 0, 0), []) == 0
    with target.cluster() as cluster:
        assert query not in [group.group_id for group in list_groups(cluster)]


def test_epochs_topic_grows_with_number_of_tasks(target: Target) -> None:
    query = some_query()
    for task in (PARTITIONS_MIN * 2, 0, PARTITIONS_MIN):
        assert target.write(Epoch(query, 0, task), numbered(task)) == 10
        assert target.write(Epoch(query, 0, task), numbered(task)) == 0


def test_retry_with_more_rows_is_rejected(target: Target) -> None:
    epoch = Epoch(some_query(), 3, 0)
    target.write(epoch, numbered("row", 10))
    assert target.write(epoch, numbered("row", 9)) == 0, "compaction may have taken one"
    with pytest.raises(EpochDiffers, match="task 0 of epoch 3 has 11 rows, but an earlier attempt wrote 10"):
        target.write(epoch, numbered("row", 11))
    assert target.committed() == numbered("row", 10)


def test_retry_with_fewer_tasks_is_rejected(target: Target) -> None:
    query = some_query()
    target.write(Epoch(query, 0, 3), numbered("before"))
    target.write(Epoch(query, 1, 3), numbered("row"))
    with target.cluster() as cluster:
        assert stable_offset(cluster, query, Epoch(query, 1, 3).place)  # Kafka tells the old one for a moment
        check_tasks(cluster, query, 0, 2)  # another epoch may have had more tasks
        check_tasks(cluster, query, 1, 4)
        with pytest.raises(EpochDiffers, match="epoch 1 has 3 tasks, but an earlier attempt had 4 or more"):
            check_tasks(cluster, query, 1, 3)
