"""Segment files of a partition, listed while the broker may be renaming or deleting them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from chronik.log.files import names

LISTINGS_MAX: Final = 20
"""Maximum number of listings until two in a row agree. Files are renamed every few seconds at most."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment's log file and its base offset."""

    path: str
    base_offset: int


def list_segment_files(directory: str) -> list[SegmentFile]:
    """Return the segment files of a partition directory in order, swap files in place of the segments they replace."""
    present = _list_stable(directory)
    files = {base: names.offset_file_name(base, names.LOG) for base in names.parse_offsets(present, names.LOG)}
    for name in present:
        swap = names.parse_swap_file_name(name)
        if swap is not None:
            first, end = swap
            files = {base: path for base, path in files.items() if not first <= base < end} | {first: name}
    return [SegmentFile(f"{directory}/{name}", base) for base, name in sorted(files.items())]


def _list_stable(directory: str) -> set[str]:
    """List the directory until two listings agree, because one listing may miss a file that is renamed concurrently.

    Raises:
        OSError: The directory cannot be read, or changes with every listing.
    """
    previous: set[str] | None = None
    for _ in range(LISTINGS_MAX):
        try:
            present = {name for name in os.listdir(directory) if name.endswith((names.LOG, names.SWAP))}
        except FileNotFoundError:
            return set()
        if present == previous:
            return present
        previous = present
    raise OSError(f"{directory}: cannot list segment files: file names changed in each of {LISTINGS_MAX} listings")
