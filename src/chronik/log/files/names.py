"""The file names of a partition directory.

00000000000000000042.log          a segment: the batches from offset 42 on
00000000000000000042.index        its sparse index of offsets and timestamps
00000000000000000042.snapshot     the producer state when the log end offset was 42
leader-epochs                     the leader epoch history
log-start, compacted              the log start offset; the offset below which the log is compacted
….cleaned                         an unfinished compacted segment
<first>-<end>.swap                a finished compacted segment that replaces all segments from `first` to `end`
….deleted                         a file that will be deleted
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


def format_offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def format_swap_file_name(first_offset: int, end_offset: int) -> str:
    return f"{first_offset:020d}-{end_offset:020d}{SWAP}"


def parse_offset_file_name(name: str) -> tuple[int, str] | None:
    """Return the offset and suffix of a segment, index or snapshot file name, or None for other names."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_file_name_offsets(present: Iterable[str], suffix: str) -> list[int]:
    """Return the sorted offsets in the file names that have this suffix."""
    parsed = (parse_offset_file_name(name) for name in present)
    return sorted(found[0] for found in parsed if found is not None and found[1] == suffix)


def parse_swap_file_name(name: str) -> tuple[int, int] | None:
    """Return the first and end offset in the name of a compacted segment's `.swap` file, or None for other names."""
    match = _SWAP_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
