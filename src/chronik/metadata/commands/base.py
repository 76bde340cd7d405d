"""Base classes and constrained field types of metadata commands."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

NO_EPOCH: Final = -1
"""A placeholder for a missing epoch. A command without an epoch is applied regardless of the current epoch."""

BrokerId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""The type of broker ids and node ids in metadata commands: a non-negative int32."""
UuidBytes = Annotated[bytes, Meta(min_length=16, max_length=16)]
"""The type of UUIDs in metadata commands: 16 raw bytes."""
PartitionIndex = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Epoch = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
TimeMs = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class CommandPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base class of structs nested in metadata commands, encoded as MessagePack arrays without a type tag."""


class CommandBase(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base class of all metadata commands, encoded as MessagePack arrays that start with a type tag."""
