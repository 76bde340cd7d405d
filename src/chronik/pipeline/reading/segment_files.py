"""Which files hold the batches of a partition, for whoever reads a broker's data folder beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from chronik.log.files import names

LISTINGS_MAX: Final = 20
"""Listings until two in a row agree. Files are renamed every few seconds at most, and listing takes microseconds."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    path: str
    base_offset: int


def segments_of(folder: str) -> list[SegmentFile]:
    """Returns them in order. A compacted segment that is about to take the place of others counts as if it had."""
    present = _listed(folder)
    files = {base: names.offset_name(base, names.LOG) for base in names.offsets_of(present, names.LOG)}
    for name in present:
        swap = names.parse_swap_name(name)
        if swap is not None:
            first, end = swap
            files = {base: path for base, path in files.items() if not first <= base < end} | {first: name}
    return [SegmentFile(f"{folder}/{name}", base) for base, name in sorted(files.items())]


def _listed(folder: str) -> set[str]:
    """Lists until two in a row agree. A file that is renamed meanwhile may come under neither name; a listing that
    begins after that has the new one: so two that agree have missed nothing. Raises OSError."""
    before: set[str] | None = None
    for _ in range(LISTINGS_MAX):
        try:
            present = {name for name in os.listdir(folder) if name.endswith((names.LOG, names.SWAP))}
        except FileNotFoundError:
            return set()
        if present == before:
            return present
        before = present
    raise OSError(f"{folder}: its files change names whenever they are listed")
