"""The names of a partition's files.

00000000000000000042.log          a segment: the batches from offset 42 on
00000000000000000042.index        its sparse index of offsets and times, rebuilt when missing, short or damaged
00000000000000000042.snapshot     what was known of producers when offset 42 was due
leader-epochs                     the history of leader epochs
log-start, compacted              where the log begins; how far it is compacted
….cleaned                         a segment that compaction has not finished
<first>-<end>.swap                a finished one that is about to take the place of all from `first` to before `end`
….deleted                         a file that waits to be removed
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LOG = ".log"
INDEX = ".index"
SNAPSHOT = ".snapshot"
CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
TEMPORARY = ".tmp"
LEADER_EPOCHS = "leader-epochs"
LOG_START = "log-start"
COMPACTED = "compacted"

_OFFSET_NAME = re.compile(r"(\d{20})(\.log|\.index|\.snapshot)")
_SWAP_NAME = re.compile(r"(\d{20})-(\d{20})\.swap")


def offset_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def swap_name(first_offset: int, end_offset: int) -> str:
    return f"{first_offset:020d}-{end_offset:020d}{SWAP}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """Returns the offset and the suffix of a segment's file, index or snapshot."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def offsets_of(present: Iterable[str], suffix: str) -> list[int]:
    """Returns the offsets of all files of one kind, in order."""
    parsed = (parse_offset_name(name) for name in present)
    return sorted(found[0] for found in parsed if found is not None and found[1] == suffix)


def parse_swap_name(name: str) -> tuple[int, int] | None:
    match = _SWAP_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
