"""Which files hold the batches of a partition, for whoever reads a broker's data folder beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from chronik.log import names


@dataclass(frozen=True, slots=True)
class SegmentFile:
    path: str
    base_offset: int


def segments_of(folder: str) -> list[SegmentFile]:
    """In order. A compacted segment that is about to take the place of others counts as if it had done so."""
    try:
        present = os.listdir(folder)
    except FileNotFoundError:
        return []
    files = {base: names.offset_name(base, names.LOG) for base in names.offsets_of(present, names.LOG)}
    for name in present:
        swap = names.parse_swap_name(name)
        if swap is not None:
            first, end = swap
            files = {base: path for base, path in files.items() if not first <= base < end} | {first: name}
    return [SegmentFile(f"{folder}/{name}", base) for base, name in sorted(files.items())]
