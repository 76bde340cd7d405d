"""Replicas of a compacted partition: each compacts for itself and when it likes, so one may still hold what another has
dropped. They agree when every record that two of them hold is the same, and whatever one has dropped is superseded: a
later record has its key. (Tombstones go after a while, and records without a key at once.)

Only chunks whose digests differ are looked at; for the keys that are in question the log is read once more. Of a key
64 bits are remembered, of a bounded number of keys at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chronik.pipeline.audit.findings import Finding, Kind, Place
from chronik.pipeline.audit.logs.narrowing import named
from chronik.pipeline.audit.logs.records import readable_records
from chronik.pipeline.audit.logs.walk import Walk
from chronik.pipeline.audit.standing import Replica
from chronik.pipeline.records.columns import Columns

KEYS_MAX: Final = 2_000_000
"""Keys in question at a time: 50 MB or so. With more, the log is read once for each so many."""

FINDINGS_MAX: Final = 20

EVERYTHING: Final = 2**62
"""A record may be superseded by one that came after the end of the audit was planned."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Compacted:
    topic: str
    partition: int
    leader: int
    replicas: tuple[Replica, ...]
    chunks: tuple[tuple[int, int], ...]
    """Stretches of offsets whose digests differ."""


class _Records(NamedTuple):
    """Records of one replica, in one stretch."""

    start: int
    end: int
    """Records were looked for between these."""
    offsets: Ints
    contents: Ints
    keys: Ints
    droppable: npt.NDArray[np.bool_]
    """Compaction may drop it whatever follows."""


class _Question(NamedTuple):
    """Records that a replica lacks and others have."""

    node: int
    offsets: Ints
    keys: Ints


def compare_survivors(task: Compacted) -> list[Finding]:
    findings: list[Finding] = []
    questions: list[_Question] = []
    for start, end in task.chunks:
        held = {each.node: _records(task, each, start, min(end, each.end)) for each in task.replicas}
        findings += _different(task, held)
        questions += _questions(held)
        if sum(len(each.offsets) for each in questions) >= KEYS_MAX:
            findings += _settled(task, questions)
            questions = []
    findings += _settled(task, questions)
    return findings[:FINDINGS_MAX]


def _columns(task: Compacted, replica: Replica, start: int, end: int) -> tuple[Walk, Iterator[Columns]]:
    place = Place(task.topic, task.partition, replica.node)
    walk = Walk(replica.folder, place, start, end, is_compacted=True, is_final=False, must_reach_end=False)
    read = readable_records(walk, place, start, end)
    return walk, (each for each in read if isinstance(each, Columns))


def _records(task: Compacted, replica: Replica, start: int, end: int) -> _Records:
    walk, columns = _columns(task, replica, start, end)
    parts = [(each.offset.to_numpy(), _contents(each), _keys(each), _droppable(each)) for each in columns]
    empty = np.empty(0, np.int64)
    if not parts:
        return _Records(walk.start, min(end, walk.due), empty, empty, empty, np.empty(0, np.bool_))
    return _Records(walk.start, min(end, walk.due), *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _contents(records: Columns) -> Ints:
    assert records.key is not None
    assert records.value is not None
    assert records.headers is not None
    rows = zip(
        records.timestamp_ms.to_pylist(),
        records.key.to_pylist(),
        records.value.to_pylist(),
        map(repr, records.headers.to_pylist()),
        strict=True,
    )
    return np.fromiter(map(hash, rows), np.int64, len(records))


def _keys(records: Columns) -> Ints:
    assert records.key is not None
    return np.fromiter(map(hash, records.key.to_pylist()), np.int64, len(records))


def _droppable(records: Columns) -> npt.NDArray[np.bool_]:
    assert records.key is not None
    assert records.value is not None
    nulls = [each.is_null().to_numpy(zero_copy_only=False) for each in (records.key, records.value)]
    dropped: npt.NDArray[np.bool_] = nulls[0] | nulls[1]
    return dropped


def _different(task: Compacted, held: dict[int, _Records]) -> Iterator[Finding]:
    """Yields offsets at which two replicas have a record, and not the same."""
    contents: dict[int, dict[int, int]] = {}
    for node, records in held.items():
        for offset, content in zip(records.offsets.tolist(), records.contents.tolist(), strict=True):
            contents.setdefault(offset, {})[node] = content
    for offset, by_node in sorted(contents.items()):
        if len(set(by_node.values())) < 2:
            continue
        counts = list(by_node.values())
        right = max(by_node, key=lambda node: (counts.count(by_node[node]), node == task.leader))
        others = [node for node in by_node if by_node[node] == by_node[right]]
        for node in by_node:
            if node not in others:
                says = f"the record at offset {offset} is not what {named(others)} have"
                yield Place(task.topic, task.partition, node).finding(Kind.DIVERGED, says, offset=offset)


def _questions(held: dict[int, _Records]) -> Iterator[_Question]:
    start = max(records.start for records in held.values())
    for node, lacking in held.items():
        for other, having in held.items():
            if other == node:
                continue
            absent = ~np.isin(having.offsets, lacking.offsets) & ~having.droppable
            absent &= (having.offsets >= start) & (having.offsets < lacking.end)
            if absent.any():
                yield _Question(node, having.offsets[absent], having.keys[absent])


def _settled(task: Compacted, questions: list[_Question]) -> Iterator[Finding]:
    """Yields those that no later record answers."""
    if not questions:
        return
    wanted = np.unique(np.concatenate([each.keys for each in questions]))
    first = min(int(each.offsets.min()) for each in questions)
    last = _last_offsets(task, wanted, first)
    told: set[tuple[int, int]] = set()
    for question in questions:
        superseded = last[np.searchsorted(wanted, question.keys)] > question.offsets
        for offset in question.offsets[~superseded].tolist():
            if (question.node, offset) not in told:
                told.add((question.node, offset))
                says = f"the record at offset {offset} is the last one of its key, others have it, and it is not here"
                place = Place(task.topic, task.partition, question.node)
                yield place.finding(Kind.DIVERGED, says, offset=offset)


def _last_offsets(task: Compacted, wanted: Ints, first: int) -> Ints:
    """Returns the last offset of each of these keys, on whichever replica."""
    last = np.full(len(wanted), -1, np.int64)
    for replica in task.replicas:
        _, columns = _columns(task, replica, first, EVERYTHING)
        for records in columns:
            keys = _keys(records)
            places = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
            found = wanted[places] == keys
            np.maximum.at(last, places[found], records.offset.to_numpy()[found])
    return last
