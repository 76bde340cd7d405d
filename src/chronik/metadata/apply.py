"""The function that applies a command to an image.

The same image and the same commands in the same order yield the same image, results and state hash on every node. No
code here reads a clock, a random number, the environment or the iteration order of a set.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from chronik.errors import check_invariant
from chronik.metadata.commands.envelope import Command, Envelope
from chronik.metadata.delta import Delta
from chronik.metadata.handlers import (
    brokers,
    cluster,
    groups,
    imports,
    partitions,
    schemas,
    security,
    topics,
    transactions,
)
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult, CommandRejectedError
from chronik.metadata.sessions import find_earlier_result
from chronik.metadata.writer import ImageWriter

HANDLERS: Final = (
    cluster.HANDLERS
    | brokers.HANDLERS
    | topics.HANDLERS
    | imports.HANDLERS
    | partitions.HANDLERS
    | groups.HANDLERS
    | transactions.HANDLERS
    | security.HANDLERS
    | schemas.HANDLERS
)


class AppliedCommand(NamedTuple):
    """The result of a metadata command and the delta of the metadata image that the command caused."""

    result: ApplyResult
    delta: Delta


def apply(image: Image, envelope: Envelope, index: int) -> AppliedCommand:
    """Apply the command at `index` of the metadata log to the metadata image.

    A command that was applied before returns its first result again.
    """
    check_invariant(index == image.applied_index + 1, f"index {index} applied after {image.applied_index}")
    writer = ImageWriter(image)
    session = image.session(envelope.node_id)
    result = find_earlier_result(session, envelope.incarnation, envelope.sequence)
    if result is None:
        result = _handle_command(writer, envelope.command, index)
        writer.store_result(envelope.node_id, envelope.incarnation, envelope.sequence, envelope.answered, result)
    return AppliedCommand(result, writer.finish_command(index))


def skip_entry(image: Image, index: int) -> None:
    """Advance the image's applied index past a log entry without a command, such as a Raft leader's first entry."""
    check_invariant(index == image.applied_index + 1, f"index {index} applied after {image.applied_index}")
    ImageWriter(image).finish_command(index)


def _handle_command(writer: ImageWriter, command: Command, index: int) -> ApplyResult:
    try:
        return replace(HANDLERS[type(command)](writer, command, index), index=index)
    except CommandRejectedError as rejected:
        check_invariant(not writer.has_changes, f"{type(command).__name__} was rejected after it had changed the image")
        return ApplyResult(rejected.code, rejected.message, index=index)
