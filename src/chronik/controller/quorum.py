"""Which nodes agree on the metadata log; any node can be asked. This module does not import Raft, which a standalone
node need not load."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

from chronik.ids import ZERO_ID
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore

OFFSET_UNKNOWN: Final = -1
TIME_UNKNOWN: Final = -1


class QuorumMember(msgspec.Struct, frozen=True, array_like=True):
    node_id: int
    directory_id: bytes
    is_voter: bool
    log_end_offset: int
    """One after the last entry that it is known to hold, or OFFSET_UNKNOWN."""
    heard_ms_ago: int = TIME_UNKNOWN
    """When the leader last heard from it; 0 for the leader itself."""
    caught_up_ms_ago: int = TIME_UNKNOWN
    """When it last held the whole log."""


class Quorum(msgspec.Struct, frozen=True, array_like=True):
    """An entry's offset is its index; an end is one after the last entry."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]


@runtime_checkable
class KnowsItsQuorum(Protocol):
    """A store that is shared with other nodes."""

    async def quorum(self) -> Quorum:
        """Returns the quorum as the leader sees it. Raises KafkaError when no leader can be asked."""


async def describe_quorum(store: MetadataStore, node_id: int) -> Quorum:
    """Returns the quorum behind any node's store. Raises KafkaError when nobody who knows can be asked."""
    if isinstance(store, KnowsItsQuorum):
        return await store.quorum()
    return quorum_of_one(store.image, node_id)


def quorum_of_one(image: Image, node_id: int) -> Quorum:
    """A standalone node agrees with itself, and has done so since the first term."""
    end = image.applied_index + 1
    broker = image.brokers.get(node_id)
    directory_id = broker.directory_id if broker is not None else ZERO_ID
    return Quorum(node_id, 0, end, (QuorumMember(node_id, directory_id, True, end, 0, 0),))
