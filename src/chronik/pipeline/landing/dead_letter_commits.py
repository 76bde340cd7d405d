"""Commits of dead-letter records, which precede the commit of the rows of the same round.

Dead-letter records and rows are two commits, and a later or concurrent driver may decode by other rules. Therefore a
committed dead-letter record remains one, even if it can be decoded now. A record that fails to decode only now, among
offsets whose dead-letter records are already committed, is a late dead-letter record and is appended separately. Each
record is thus in exactly one of the two tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chronik.pipeline.tables.commit_plan import CommitRejectedError, TaskOutput, WrittenFile
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.offset_sets import OffsetSets, collect_offsets
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import SequenceConflictError, TopicTable

LATE_SEQUENCE = "late"
"""Name of the sequence that numbers the commits of late dead-letter records."""


class DeadLettersChangedError(CommitRejectedError):
    """Another driver has committed dead-letter records of the same offsets, perhaps different ones: plan again."""


@dataclass(frozen=True, slots=True)
class DeadLetterState:
    """The state of a dead-letter table when a round is planned."""

    next_offsets: dict[int, int]
    next_late_sequence_number: int
    """Sequence number of the next commit of late dead-letter records."""
    offsets_ahead: OffsetSets
    """Offsets of dead-letter records beyond the table's next offsets."""


def read_dead_letter_state(dead: TopicTable, table_next_offsets: Mapping[int, int]) -> DeadLetterState:
    """Read the state of a dead-letter table, given the next offsets of the topic's table."""
    # Read the records last: a concurrent commit is then detected by the changed sequence number or next offsets.
    late_number = dead.next_sequence_number(LATE_SEQUENCE)
    next_offsets = dead.next_offsets()
    ahead = {
        partition: range(table_next_offsets.get(partition, 0), end)
        for partition, end in next_offsets.items()
        if table_next_offsets.get(partition, 0) < end
    }
    return DeadLetterState(next_offsets, late_number, _read_offsets_within(dead, ahead) if ahead else {})


def _read_offsets_within(dead: TopicTable, wanted: Mapping[int, range]) -> OffsetSets:
    table = dead.files()
    overlapping = [
        file
        for file in table.files
        if any(file.may_contain(partition, offsets.start, offsets.stop) for partition, offsets in wanted.items())
    ]
    found = collect_offsets(scan(table.with_files(*overlapping), [PARTITION, OFFSET]))
    return {
        partition: found[partition][(found[partition] >= offsets.start) & (found[partition] < offsets.stop)]
        for partition, offsets in wanted.items()
        if partition in found
    }


def commit_dead_letters(
    dead: TopicTable,
    planned: DeadLetterState,
    partitions: Iterable[int],
    landed: Sequence[TaskOutput],
    late: Sequence[WrittenFile],
) -> int:
    """Commit dead-letter records and return how many are new. The rows of these partitions may be committed afterwards.

    Raises:
        CommitRejectedError: Another driver has committed dead-letter records; some of these may be committed too.
        TableCommitError: The outcome is unknown.
    """
    expected, rows = planned.next_offsets, sum(file.rows for file in late)
    if late:
        try:
            dead.append_in_sequence(late, LATE_SEQUENCE, planned.next_late_sequence_number)
        except SequenceConflictError as superseded:
            raise DeadLettersChangedError(str(superseded)) from superseded
    if landed:
        committed = dead.commit(landed)
        if committed.committed_outputs:
            raise DeadLettersChangedError(f"{dead.uri} has dead-letter records of these offsets already")
        expected = expected | committed.next_offsets
        rows += committed.rows
    # Also check a round without dead-letter records: another driver may have found some among the same records.
    now = dead.next_offsets()
    has_changed = any(now.get(partition) != expected.get(partition) for partition in partitions)
    if has_changed or dead.next_sequence_number(LATE_SEQUENCE) != planned.next_late_sequence_number + bool(late):
        raise DeadLettersChangedError(
            f"another driver has committed dead-letter records of these offsets to {dead.uri}"
        )
    return rows
