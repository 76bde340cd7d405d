"""Property tests of the restriction of live tails: every needed record stays in an offset range."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from chronik.client.records import TopicPartition
from chronik.pipeline.query.conditions import ColumnCondition, Operator
from chronik.pipeline.query.tail_pruning import restrict_tail
from chronik.pipeline.source.offset_ranges import OffsetRange
from tests.pipeline.query.test_file_pruning import Row, is_true
from tests.run_size import SEED, sized

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_MS = 1_714_564_800_000

Log = dict[TopicPartition, list[int]]
"""Timestamps in milliseconds by partition and offset."""


def find_offsets(log: Log, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return offsets as ListOffsets does."""
    return {
        partition: next((offset for offset, time in enumerate(log[partition]) if time >= wanted), -1)
        for partition, wanted in timestamps_ms.items()
    }


def restrict(log: Log, *references: tuple[ColumnCondition, ...]) -> list[tuple[int, int, int]]:
    ranges = [OffsetRange(*partition, 0, len(times)) for partition, times in log.items()]
    found = restrict_tail(ranges, references, lambda timestamps: find_offsets(log, timestamps))
    return [(each.partition, each.start, each.end) for each in found]


def build_condition(random: random.Random) -> ColumnCondition:
    column = random.choice(["_partition", "_offset", "_offset", "_timestamp", "_date", "n"])
    operators = [each for each in Operator if each is not Operator.STARTS_WITH]
    operator = random.choice(operators)
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return ColumnCondition(column, operator)

    def make() -> int | datetime | date:
        if column == "_timestamp":
            return NOON + timedelta(microseconds=random.randint(-3000, 12_000))
        return NOON.date() + timedelta(days=random.randint(-1, 1)) if column == "_date" else random.randint(-1, 10)

    count = random.randint(1, 3) if operator in (Operator.IN, Operator.NOT_IN) else 1
    return ColumnCondition(column, operator, tuple(make() for _ in range(count)))


def test_every_needed_record_stays_in_the_tail() -> None:
    generator = random.Random(SEED)
    removed = 0
    for _ in range(sized(500, 30_000)):
        log: Log = {
            TopicPartition("orders", number): [
                generator.choice([-1, NOON_MS + generator.randint(0, 10), NOON_MS - 86_400_000])
                for _ in range(generator.randint(1, 10))
            ]
            for number in range(3)
        }
        references = [
            tuple(build_condition(generator) for _ in range(generator.randint(0, 2)))
            for _ in range(generator.choice([1, 1, 2]))
        ]
        kept = {(partition, offset) for partition, *ends in restrict(log, *references) for offset in range(*ends)}
        for (_, partition), times in log.items():
            for offset, time in enumerate(times):
                at = None if time < 0 else datetime.fromtimestamp(time / 1000, UTC)
                row: Row = {"_partition": partition, "_offset": offset, "_timestamp": at, "n": None}
                row["_date"] = None if at is None else at.date()
                is_needed = any(all(is_true(each, row) for each in conditions) for conditions in references)
                assert (partition, offset) in kept or not is_needed, (references, row)
                removed += (partition, offset) not in kept
    assert removed > 1000


def test_offsets_and_partitions_are_restricted_exactly() -> None:
    log: Log = {TopicPartition("orders", number): [NOON_MS + offset for offset in range(10)] for number in range(3)}
    partition = ColumnCondition("_partition", Operator.EQUAL, (1,))
    assert restrict(log, (partition,)) == [(1, 0, 10)]
    first, last = (
        ColumnCondition("_offset", Operator.GREATER, (3,)),
        ColumnCondition("_offset", Operator.LESS_OR_EQUAL, (5,)),
    )
    assert restrict(log, (partition, first, last)) == [(1, 4, 6)]
    assert restrict(log, (partition, first), (ColumnCondition("_partition", Operator.EQUAL, (2,)),)) == [
        (1, 4, 10),
        (2, 0, 10),
    ]
    assert restrict(log, (ColumnCondition("_offset", Operator.EQUAL, (10,)),)) == []
    recent = ColumnCondition("_timestamp", Operator.GREATER_OR_EQUAL, (NOON + timedelta(milliseconds=7),))
    assert restrict(log, (recent,)) == [(0, 7, 10), (1, 7, 10), (2, 7, 10)]
    assert (
        restrict(log, (ColumnCondition("_date", Operator.GREATER_OR_EQUAL, (NOON.date() + timedelta(days=1),)),)) == []
    )
