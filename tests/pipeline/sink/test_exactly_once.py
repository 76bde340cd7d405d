"""Tests of exactly-once writes: attempts that die, are fenced, are late, or have other rows than before."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.groups import fetch_stable_offset, list_committed_offsets, list_groups
from chronik.pipeline.errors import EpochMismatchError
from chronik.pipeline.sink.exactly_once import (
    EPOCHS_TOPIC,
    PARTITIONS_MIN,
    TaskEpoch,
    check_task_count,
    write_exactly_once,
)
from chronik.pipeline.sink.publisher import PublishSettings
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.testing import Broker
from tests.pipeline.apache_kafka import ApacheKafka
from tests.pipeline.committed_reader import read_committed_values
from tests.pipeline.jars import APACHE_KAFKA, skip_without_jars

PARTITIONS = 2
TIMEOUT_MS = 60_000
STEPS_MAX = 200
"""More requests than an attempt makes."""

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
"""Error codes for a producer that another one with the same transactional id has fenced."""

Hook = Callable[[], None]


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    skip_without_jars(APACHE_KAFKA)
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as broker:
        yield broker


class TargetTopic:
    """A new topic, and tasks that write to it."""

    def __init__(self, broker: Broker | ApacheKafka) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = f"target-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.topic, PARTITIONS)

    def write(self, epoch: TaskEpoch, values: Sequence[str], hook: Hook | None = None) -> int:
        """Write an epoch, calling `hook` before and after each request, and return the number of records."""
        HookedConnection.hook = hook
        half = (len(values) + 1) // 2
        settings = PublishSettings(self.bootstrap, self.topic)
        try:
            with self.cluster() as cluster:
                return write_exactly_once(
                    cluster, settings, epoch, TIMEOUT_MS, map(rows, (values[:half], values[half:]))
                )
        finally:
            HookedConnection.hook = None

    def cluster(self) -> ClusterClient:
        return ClusterClient(self.bootstrap, client_id="test")

    def committed(self) -> list[str]:
        return [value.decode() for value in read_committed_values(self.bootstrap, self.topic, PARTITIONS)]


class HookedConnection(BrokerConnection):
    """A connection that calls a hook before and after each request."""

    hook: ClassVar[Hook | None] = None

    def request(self, *arguments: Any, **keywords: Any) -> Any:
        self._call_hook()
        response = super().request(*arguments, **keywords)
        self._call_hook()
        return response

    def _call_hook(self) -> None:
        hook = type(self).hook
        if hook is not None:
            hook()


class ProcessKilled(BaseException):
    """A killed process: it stops without any clean-up."""


@pytest.fixture(params=["chronik_broker", "apache_kafka"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TargetTopic:
    monkeypatch.setattr("chronik.client.cluster.BrokerConnection", HookedConnection)
    return TargetTopic(request.getfixturevalue(request.param))


def rows(values: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": list(values), "value": list(values)})


def random_query() -> str:
    return f"query-{uuid.uuid4().hex[:8]}"


def values_named(name: object, size: int = 10) -> list[str]:
    return [f"{name}-{number}" for number in range(size)]


def at_step(wanted: int, act: Hook) -> tuple[Hook, list[int]]:
    """Return a hook that calls `act` at its n-th call, and its call counter."""
    called = [0]

    def hook() -> None:
        called[0] += 1
        if called[0] == wanted:
            act()

    return hook, called


def test_each_epoch_is_written_once_in_order(target: TargetTopic) -> None:
    query = random_query()
    for number in range(3):
        values = values_named(number)
        assert target.write(TaskEpoch(query, number, 0), values) == len(values)
        assert target.write(TaskEpoch(query, number, 0), values) == 0, "a retry writes nothing"
    assert target.write(TaskEpoch(query, 0, 1), values_named("other task")) == 10
    with target.cluster() as cluster:
        assert fetch_stable_offset(
            cluster, query, TaskEpoch(query, 0, 1).epochs_partition
        )  # wait: Kafka may not return the offset yet
        committed = list_committed_offsets(cluster, query)
    assert {(place.topic, place.partition): each.offset for place, each in committed.items()} == {
        (EPOCHS_TOPIC, 0): 2,
        (EPOCHS_TOPIC, 1): 0,
    }
    assert target.committed() == sorted(
        [*(each for number in range(3) for each in values_named(number)), *values_named("other task")]
    )


def test_retry_succeeds_after_attempt_dies_at_any_request(target: TargetTopic) -> None:
    expected: list[str] = []
    for step in count(1):
        assert step < STEPS_MAX
        epoch, values = TaskEpoch(random_query(), 7, 0), values_named(step)
        expected += values

        def die() -> None:
            HookedConnection.hook = die
            raise ProcessKilled

        try:
            target.write(epoch, values, at_step(step, die)[0])
        except ProcessKilled:
            target.write(epoch, values)
            continue
        break
    assert step > 20, "an attempt makes more requests"
    assert target.committed() == sorted(expected)


def test_fenced_attempt_cannot_write(target: TargetTopic) -> None:
    expected: list[str] = []
    fenced_count, error_codes = 0, set[ErrorCode]()
    for step in count(1):
        assert step < STEPS_MAX
        epoch, values = TaskEpoch(random_query(), 7, 0), values_named(step)
        expected += values

        def write_concurrently() -> None:
            target.write(epoch, values)  # noqa: B023

        hook, called = at_step(step, write_concurrently)
        try:
            target.write(epoch, values, hook)
        except KafkaError as error:
            fenced_count += error.code in FENCED
            error_codes.add(error.code)
        if called[0] < step:
            break
    assert error_codes <= set(FENCED)
    assert fenced_count > 5, "most first attempts had started a transaction"
    assert target.committed() == sorted(expected)


def test_late_attempt_of_earlier_epoch_writes_nothing(target: TargetTopic) -> None:
    query = random_query()
    target.write(TaskEpoch(query, 5, 0), values_named("five"))
    target.write(TaskEpoch(query, 6, 0), values_named("six"))
    assert target.write(TaskEpoch(query, 5, 0), values_named("five")) == 0
    assert target.write(TaskEpoch(query, 4, 0), values_named("four")) == 0
    assert target.committed() == sorted([*values_named("five"), *values_named("six")])


def test_failed_write_is_aborted_and_does_not_block_readers(target: TargetTopic) -> None:
    epoch = TaskEpoch(random_query(), 0, 0)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(values_named("good"))
        raise OSError("the source was deleted")

    with target.cluster() as cluster, pytest.raises(OSError, match="the source was deleted"):
        write_exactly_once(cluster, PublishSettings(target.bootstrap, target.topic), epoch, TIMEOUT_MS, batches())
    target.write(TaskEpoch(random_query(), 0, 0), values_named("another"))
    assert target.committed() == values_named("another"), "readers must not wait for the transaction timeout"
    assert target.write(epoch, values_named("good")) == 10


def test_task_without_rows_starts_no_transaction(target: TargetTopic) -> None:
    query = random_query()
    assert target.write(TaskEpoch(query, 0, 0), []) == 0
    with target.cluster() as cluster:
        assert query not in [group.group_id for group in list_groups(cluster)]


def test_epochs_topic_grows_with_number_of_tasks(target: TargetTopic) -> None:
    query = random_query()
    for task in (PARTITIONS_MIN * 2, 0, PARTITIONS_MIN):
        assert target.write(TaskEpoch(query, 0, task), values_named(task)) == 10
        assert target.write(TaskEpoch(query, 0, task), values_named(task)) == 0


def test_retry_with_more_rows_is_rejected(target: TargetTopic) -> None:
    epoch = TaskEpoch(random_query(), 3, 0)
    target.write(epoch, values_named("row", 10))
    assert target.write(epoch, values_named("row", 9)) == 0, "compaction may have removed one"
    with pytest.raises(EpochMismatchError, match="task 0 of epoch 3 has 11 rows, but an earlier attempt wrote 10"):
        target.write(epoch, values_named("row", 11))
    assert target.committed() == values_named("row", 10)


def test_retry_with_fewer_tasks_is_rejected(target: TargetTopic) -> None:
    query = random_query()
    target.write(TaskEpoch(query, 0, 3), values_named("before"))
    target.write(TaskEpoch(query, 1, 3), values_named("row"))
    with target.cluster() as cluster:
        assert fetch_stable_offset(
            cluster, query, TaskEpoch(query, 1, 3).epochs_partition
        )  # wait: Kafka may return the old offset
        check_task_count(cluster, query, 0, 2)  # another epoch may have had more tasks
        check_task_count(cluster, query, 1, 4)
        with pytest.raises(EpochMismatchError, match="epoch 1 has 3 tasks, but an earlier attempt had 4 or more"):
            check_task_count(cluster, query, 1, 3)
