"""Dead letters that are ahead of their table: committed by a round whose rows did not follow.

Letters and rows are two commits, and which records are letters is up to the rules of whoever decodes: the driver that
comes after one that died, or works beside it, may have others. So a letter that is there stays one, by its position and
whatever it decodes to now; and a record that has become one among records whose letters are committed is a late letter,
appended beside the offsets. A record is then in exactly one of the two tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chronik.pipeline.tables.files import scan
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.offset_sets import OffsetSets, offsets_in
from chronik.pipeline.tables.spans import CommitRefused, Landed, WrittenFile
from chronik.pipeline.tables.topic_table import Superseded, TopicTable

LATE = "late"
"""The sequence that commits of late letters are numbered in."""


class LettersMoved(CommitRefused):
    """Another driver has committed letters of the same records, perhaps others than these: plan again."""


@dataclass(frozen=True, slots=True)
class Letters:
    """The state of a table of dead letters when a round is planned."""

    next_offsets: dict[int, int]
    late_number: int
    """The number of the next commit of late letters."""
    ahead: OffsetSets
    """Letters beyond the table's rows."""


def letters_now(dead: TopicTable, table_next_offsets: Mapping[int, int]) -> Letters:
    # The letters last: whatever is committed meanwhile is noticed, for the number or the offsets have moved then.
    late_number = dead.next_number(LATE)
    next_offsets = dead.next_offsets()
    ahead = {
        partition: range(table_next_offsets.get(partition, 0), end)
        for partition, end in next_offsets.items()
        if table_next_offsets.get(partition, 0) < end
    }
    return Letters(next_offsets, late_number, _offsets_within(dead, ahead) if ahead else {})


def _offsets_within(dead: TopicTable, wanted: Mapping[int, range]) -> OffsetSets:
    table = dead.files()
    some = [
        file
        for file in table.files
        if any(file.may_hold(partition, offsets.start, offsets.stop) for partition, offsets in wanted.items())
    ]
    found = offsets_in(scan(table.with_files(*some), [PARTITION, OFFSET]))
    return {
        partition: found[partition][(found[partition] >= offsets.start) & (found[partition] < offsets.stop)]
        for partition, offsets in wanted.items()
        if partition in found
    }


def commit_letters(
    dead: TopicTable,
    planned: Letters,
    partitions: Iterable[int],
    landed: Sequence[Landed],
    late: Sequence[WrittenFile],
) -> int:
    """Returns how many are new. Afterwards the rows of these partitions, told from letters as `planned`, may follow.

    Raises CommitRefused, CommitFailed: either may have committed some of the letters.
    """
    expected, rows = planned.next_offsets, sum(file.rows for file in late)
    if late:
        try:
            dead.append_numbered(late, LATE, planned.late_number)
        except Superseded as superseded:
            raise LettersMoved(str(superseded)) from superseded
    if landed:
        committed = dead.commit(landed)
        if committed.present:
            raise LettersMoved(f"{dead.uri} has letters of these records already")
        expected = expected | committed.next_offsets
        rows += committed.rows
    # Also a round without letters: one with other rules may have found some among the same records.
    now = dead.next_offsets()
    moved = any(now.get(partition) != expected.get(partition) for partition in partitions)
    if moved or dead.next_number(LATE) != planned.late_number + bool(late):
        raise LettersMoved(f"{dead.uri} has got letters of these records meanwhile")
    return rows
