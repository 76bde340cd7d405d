"""The image as the state machine of a Raft log: entries in, deltas and results out, snapshots both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence

from chronik.errors import invariant
from chronik.metadata.apply import apply, skip
from chronik.metadata.commands.envelope import Envelope, decode_command
from chronik.metadata.delta import Delta, difference_in_steps
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.snapshot import SnapshotLoader, encode_snapshot
from chronik.raft.entries import Entry, EntryKind
from chronik.scheduler import run_in_slices

OnApplied = Callable[[Envelope, Result], None]
"""Is called for each command that is applied here, whoever proposed it."""


class ImageMachine:
    def __init__(
        self, publish: Callable[[Delta], None], on_applied: OnApplied, on_restored: Callable[[], None]
    ) -> None:
        self._publish = publish
        self._on_applied = on_applied
        self._on_restored = on_restored
        self.image = Image()

    def apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.kind is not EntryKind.COMMAND:
                skip(self.image, entry.index)  # so that all nodes count the same indexes
                continue
            envelope = decode_command(entry.data)
            result, delta = apply(self.image, envelope, entry.index)
            self._publish(delta)
            self._on_applied(envelope, result)

    def begin_snapshot(self) -> Iterator[bytes]:
        yield from encode_snapshot(self.image.freeze())

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        """Replaces the image. The old one answers until the new one is whole; then the difference is one delta. It is
        all done in slices: nothing changes the old image meanwhile, since entries wait for the snapshot."""
        loader = SnapshotLoader()
        async for chunk in chunks:
            loader.add(chunk)
            await asyncio.sleep(0)
        image = loader.finish()
        invariant(image.applied_index == index, f"the snapshot is of {image.applied_index} where {index} was due")
        delta = await run_in_slices(difference_in_steps(self.image, image))
        before, self.image = self.image, image
        self._publish(delta)
        self._on_restored()
        parts = before.parts()
        del before, delta
        await run_in_slices(_let_go(parts))


def _let_go(parts: list[object]) -> Generator[None, None, None]:
    """Frees the old image bit by bit: to free a million records at once takes a tenth of a second. A caller that still
    reads the old image loses nothing by it."""
    while parts:
        parts.pop()
        yield
