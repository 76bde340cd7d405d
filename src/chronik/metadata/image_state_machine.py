"""The Raft state machine of the metadata log: applies entries to the image, takes and installs snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence

from chronik.errors import check_invariant
from chronik.metadata.apply import apply, skip_entry
from chronik.metadata.commands.envelope import Envelope, decode_command
from chronik.metadata.delta import Delta, diff_images_in_steps
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.snapshot import SnapshotLoader, encode_snapshot
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.scheduler import run_in_slices

OnApplied = Callable[[Envelope, ApplyResult], None]
"""A callback that receives the result of each command applied on this node, including other nodes' commands."""


class ImageStateMachine:
    """The state machine that applies committed Raft entries to the metadata image."""

    def __init__(
        self, publish: Callable[[Delta], None], on_applied: OnApplied, on_restored: Callable[[], None]
    ) -> None:
        self._publish = publish
        self._on_applied = on_applied
        self._on_restored = on_restored
        self.image = Image()

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        """Apply committed Raft entries to the image, and publish the delta and result of each command."""
        for entry in entries:
            if entry.kind is not EntryKind.COMMAND:
                skip_entry(self.image, entry.index)  # keeps the applied index equal on all nodes
                continue
            envelope = decode_command(entry.data)
            result, delta = apply(self.image, envelope, entry.index)
            self._publish(delta)
            self._on_applied(envelope, result)

    def begin_snapshot(self) -> Iterator[bytes]:
        """Return an iterator over the encoded chunks of a snapshot of the current image."""
        yield from encode_snapshot(self.image.freeze())

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        """Replace the image with the state in a Raft snapshot, and publish the difference as a single delta.

        The old image stays readable until the new one is complete. The work is done in slices of the event loop; the
        old image does not change in the meantime, because log entries wait for the snapshot.
        """
        loader = SnapshotLoader()
        async for chunk in chunks:
            loader.add(chunk)
            await asyncio.sleep(0)
        image = loader.finish()
        check_invariant(image.applied_index == index, f"expected snapshot index {index}, got {image.applied_index}")
        delta = await run_in_slices(diff_images_in_steps(self.image, image))
        before, self.image = self.image, image
        self._publish(delta)
        self._on_restored()
        parts = before.releasable_parts()
        del before, delta
        await run_in_slices(_free_incrementally(parts))


def _free_incrementally(parts: list[object]) -> Generator[None, None, None]:
    """Free the parts of a replaced image one at a time, because freeing a million records at once takes 0.1 s."""
    while parts:
        parts.pop()
        yield
