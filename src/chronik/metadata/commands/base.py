"""What commands are made of."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

NO_EPOCH: Final = -1
"""The command is not fenced: it is applied whatever the current epoch is."""

BrokerId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
PartitionIndex = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Epoch = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
TimeMs = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A piece of a command."""


class Base(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What all commands have in common."""
