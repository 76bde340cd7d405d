"""Three transactional copiers under random kills, pauses and isolation of brokers and copiers: every record is copied
once, according to every node, and the committed offsets match the copies.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.run_size import SEED, sized

from .brokers import Brokers, ChronikBrokers, running_brokers
from .copier import GROUP, INPUT, OUTPUT, OUTPUT_PARTITIONS
from .copier_faults import FAULTS, CopierProcesses, Fault, create_copier_cluster, is_possible
from .diagnosis import describe_cluster_state

pytestmark = pytest.mark.xdist_group("cluster")

RECORDS = sized(10_000, 100_000)
STEPS = sized(7, 60)
"""Number of faults. A chunk of the records is in progress when each of them begins and ends."""

INPUT_PARTITIONS = 6
HOLD_SECONDS = (0.5, 6.5)
"""Shorter and longer than a broker session (3 s), a member session (6 s) and a transaction timeout (5 s)."""

SETTLED_SECONDS_MAX = 120.0
"""Time limit for copying: elections, sessions and timeouts, on a busy machine."""

POLL_SECONDS = 0.1
ASK_SECONDS_MIN, ASK_SECONDS_MAX = 0.2, 5.0

Summary = Callable[[str, object], None]


def test_records_are_copied_exactly_once_under_faults(tmp_path: Path, record_property: Summary) -> None:
    rng = random.Random(f"copied {SEED}")
    with running_brokers(tmp_path / "brokers", create_copier_cluster) as brokers:
        make_topics(brokers)
        feed = Feed(brokers.bootstrap)
        with CopierProcesses(brokers, tmp_path) as copiers:
            for fault, chunk in zip(chosen_faults(brokers, rng), split_numbers(), strict=False):
                run_fault(brokers, copiers, feed, fault, chunk, rng)
            feed.wait_until_written()
            wait_until_copied(brokers, copiers, RECORDS)
        attempts = judge(brokers)
    restarts_text = f"{copiers.restarts} restarts, {copiers.hung} of them because the client hung"
    record_property(
        "summary", f"copied exactly once: {RECORDS:,} records, {STEPS} faults, {attempts:,} copies, {restarts_text}"
    )


def chosen_faults(brokers: Brokers, rng: random.Random) -> Iterator[Fault]:
    """Yield the faults. Every kind appears once before one is repeated."""
    possible = [fault for fault in FAULTS if is_possible(fault, brokers)]
    for _ in cycle([None]):
        yield from rng.sample(possible, len(possible))


def split_numbers() -> list[range]:
    bounds = [RECORDS * step // STEPS for step in range(STEPS + 1)]
    return [range(first, end) for first, end in pairwise(bounds)]


def make_topics(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    wanted = {INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}
    made = admin.create_topics([NewTopic(name, partitions, 3, config=config) for name, partitions in wanted.items()])
    for each in made.values():
        each.result()


class Feed:
    """A producer of consecutive numbers to the input topic."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._failures: list[str] = []

    def write(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._producer.produce(INPUT, str(number), partition=number % INPUT_PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)

    def wait_until_written(self) -> None:
        assert self._producer.flush(SETTLED_SECONDS_MAX) == 0
        assert not self._failures, self._failures[:3]

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))


def run_fault(
    brokers: Brokers, copiers: CopierProcesses, feed: Feed, fault: Fault, chunk: range, rng: random.Random
) -> None:
    """Apply a fault while a chunk is being written and copied.

    The fault ends after its duration, or when most of the chunk has been copied.
    """
    feed.write(chunk)
    wait_until_copied(brokers, copiers, chunk.start + len(chunk) // 8)
    with fault(brokers, copiers, rng) as what:
        hold_s, began = rng.uniform(*HOLD_SECONDS), time.monotonic()
        wait_until_copied(brokers, copiers, chunk.stop - len(chunk) // 4, give_up_at=began + hold_s)
        held_s = time.monotonic() - began
        print(f"{what} for {held_s:.1f} of {hold_s:.1f} s, with records {chunk.start} to {chunk.stop}")
    brokers.wait_until_ready()


def wait_until_copied(
    brokers: Brokers, copiers: CopierProcesses, records: int, give_up_at: float | None = None
) -> None:
    """Wait until the records are copied, at most until `give_up_at`; without it, a timeout fails the test."""
    deadline = time.monotonic() + SETTLED_SECONDS_MAX if give_up_at is None else give_up_at
    with create_consumer(brokers.bootstrap) as consumer:
        while (copied := sum(committed(consumer, deadline).values())) < records:
            copiers.restart_exited()
            if time.monotonic() > deadline:
                if give_up_at is not None:
                    return
                pytest.fail(f"{copied} of {records} are copied\n{standing(brokers, copiers)}")
            time.sleep(POLL_SECONDS)


def standing(brokers: Brokers, copiers: CopierProcesses) -> str:
    nodes = brokers.cluster.nodes.values() if isinstance(brokers, ChronikBrokers) else ()
    return f"{copiers.diagnose()}\n{describe_cluster_state(nodes, (INPUT, OUTPUT), GROUP)}"


# Checks


def judge(brokers: Brokers) -> int:
    """Check the copies through every node. Return the number of copies, including aborted ones."""
    for address in brokers.addresses:
        with create_consumer(address) as consumer:
            assert committed(consumer) == ends(consumer, INPUT, INPUT_PARTITIONS), f"through {address}"
            copies = read_to_the_end(consumer)
        seen = sorted(number for numbers in copies.values() for number, _ in numbers)
        assert seen == list(range(RECORDS)), f"through {address}: {difference(seen)}"
        for partition, numbers in copies.items():
            check_order(partition, numbers)
    with create_consumer(brokers.bootstrap, "read_uncommitted") as consumer:
        return sum(map(len, read_to_the_end(consumer).values()))


def difference(seen: list[int]) -> str:
    missing = sorted(set(range(RECORDS)) - set(seen))
    doubled = sorted({number for number, other in pairwise(seen) if number == other})
    return f"{len(missing)} missing, as {missing[:5]}; {len(doubled)} more than once, as {doubled[:5]}"


def check_order(partition: int, numbers: list[tuple[int, int]]) -> None:
    """Check that the records of each input partition are in order."""
    by_source: dict[int, list[int]] = defaultdict(list)
    for number, source in numbers:
        by_source[source].append(number)
    for source, found in by_source.items():
        assert found == sorted(found), f"out of order in {OUTPUT}-{partition}: what comes from {INPUT}-{source}"


def create_consumer(bootstrap: str, isolation: str = "read_committed") -> closing[Consumer]:
    """Return a consumer without group membership and commits."""
    settings = {"group.id": GROUP, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    return closing(Consumer(settings | {"bootstrap.servers": bootstrap, "isolation.level": isolation}))


def committed(consumer: Consumer, deadline: float = math.inf) -> dict[int, int]:
    """Return the committed offsets by partition, without those that are currently unavailable."""
    seconds = min(max(deadline - time.monotonic(), ASK_SECONDS_MIN), ASK_SECONDS_MAX)
    wanted = [TopicPartition(INPUT, partition) for partition in range(INPUT_PARTITIONS)]
    try:
        return {at.partition: at.offset for at in consumer.committed(wanted, seconds) if at.offset >= 0}
    except KafkaException:
        return {}


def ends(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    asked = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), ASK_SECONDS_MAX)
        for partition in range(partitions)
    }
    return {partition: end for partition, (_, end) in asked.items()}


def read_to_the_end(consumer: Consumer) -> dict[int, list[tuple[int, int]]]:
    """Return number and source of each copy, by partition, in order."""
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(OUTPUT_PARTITIONS)}
    unread = set(found)
    consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in unread])
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while unread:
        assert time.monotonic() < deadline, f"the end of {unread} was not read"
        for message in consumer.consume(1000, timeout=POLL_SECONDS):
            if message.error() is None:
                number, source, _ = message.value().split()
                found[message.partition()].append((int(number), int(source)))
            else:  # the end of a partition is reported as an error
                unread.discard(message.partition())
    return found
