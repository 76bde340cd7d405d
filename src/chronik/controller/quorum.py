"""Description of the metadata quorum, available on every node.

The module does not import Raft, which a standalone node need not load.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

from chronik.ids import ZERO_ID
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore

OFFSET_UNKNOWN: Final = -1
TIME_UNKNOWN: Final = -1


class QuorumMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of the metadata quorum and its replication progress."""

    node_id: int
    directory_id: bytes
    is_voter: bool
    log_end_offset: int
    """Log end offset known to the leader, or OFFSET_UNKNOWN."""
    last_contact_ms_ago: int = TIME_UNKNOWN
    """Milliseconds since the leader last received a message from the member; 0 for the leader itself."""
    caught_up_ms_ago: int = TIME_UNKNOWN
    """Milliseconds since the member was last caught up with the leader's log."""


class Quorum(msgspec.Struct, frozen=True, array_like=True):
    """The state of the metadata quorum. Offsets are Raft indexes; end offsets are exclusive."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]


@runtime_checkable
class ReplicatedStore(Protocol):
    """A metadata store that is replicated to other nodes."""

    async def quorum(self) -> Quorum:
        """Return the leader's view of the quorum. Raise KafkaError if no leader is reachable."""


async def describe_quorum(store: MetadataStore, node_id: int) -> Quorum:
    """Return the state of the metadata quorum. Raise KafkaError if no leader is reachable."""
    if isinstance(store, ReplicatedStore):
        return await store.quorum()
    return build_standalone_quorum(store.image, node_id)


def build_standalone_quorum(image: Image, node_id: int) -> Quorum:
    """Return the quorum of a standalone node, which is its only member and leader."""
    end = image.applied_index + 1
    broker = image.brokers.get(node_id)
    directory_id = broker.directory_id if broker is not None else ZERO_ID
    return Quorum(node_id, 0, end, (QuorumMember(node_id, directory_id, True, end, 0, 0),))
