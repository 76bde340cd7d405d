"""The image as the state machine of a Raft log: entries in, deltas and results out, snapshots both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from chronik.errors import invariant
from chronik.metadata.apply import apply, skip
from chronik.metadata.commands import Envelope, decode_command
from chronik.metadata.delta import Delta, difference
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.snapshot import decode_snapshot, encode_snapshot
from chronik.raft.entries import Entry, EntryKind

OnApplied = Callable[[Envelope, Result], None]
"""A command has been applied here, whoever proposed it."""


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
        image = self.image
        frozen = image.freeze()
        try:
            yield from encode_snapshot(frozen)
        finally:
            image.thaw()

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        """The old image answers until the new one is whole; then the difference is one delta."""
        received = []
        async for chunk in chunks:
            received.append(chunk)
            await asyncio.sleep(0)
        image = decode_snapshot(received)
        invariant(image.applied_index == index, f"a snapshot of {image.applied_index} where {index} was due")
        before, self.image = self.image, image
        self._publish(difference(before, image))
        self._on_restored()
