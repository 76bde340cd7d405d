"""Addition and removal of voters of the metadata log, as in Kafka's AddRaftVoter and RemoveRaftVoter."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from chronik.admin.fresh_image_retry import refresh_image
from chronik.admin.nodes import NodeAction, NodeChange, alter_nodes, check_nodes_can_change, describe_members
from chronik.controller.quorum import QuorumMember
from chronik.ids import ZERO_ID, format_id
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

POLL_INTERVAL_SECONDS: Final = 0.1
"""The interval at which the membership is polled."""

REMOVAL_SECONDS: Final = 30.0
"""The timeout of a removal. Kafka's request has none; a leader that hands over first needs a second or two."""


class VoterKey(NamedTuple):
    """A voter identified by node id and directory id."""

    node_id: int
    directory_id: bytes
    """The directory id, or ZERO_ID for any directory."""


async def add_voter(
    store: MetadataStore,
    node_id: int,
    voter: VoterKey,
    address: tuple[str, int] | None,
    *,
    cluster_id: str | None,
    seconds: float,
    wait_until_voter: bool = True,
) -> None:
    """Promote a node to a voter, adding it first if necessary.

    With `until_it_votes`, waits until the membership has changed.

    Raises:
        KafkaError: The node is already a voter, or the change failed or timed out.
    """
    member = await _find_member(store, node_id, voter, cluster_id)
    if member is not None and member.is_voter:
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"Node {voter.node_id} is already a voter.")
    changes = [NodeChange(voter.node_id, NodeAction.PROMOTE)]
    if voter.node_id not in store.image.nodes:
        host, port = address or (None, 0)
        changes.insert(0, NodeChange(voter.node_id, NodeAction.ADD, host, port))
    await _alter(store, node_id, changes, cluster_id, seconds)
    if wait_until_voter:
        await _wait(store, node_id, voter.node_id, seconds, votes=True)


async def remove_voter(store: MetadataStore, node_id: int, voter: VoterKey, *, cluster_id: str | None) -> None:
    """Demote a voter and wait until it no longer votes.

    Raises:
        KafkaError: The node is not a voter, or the change failed or timed out.
    """
    member = await _find_member(store, node_id, voter, cluster_id)
    if member is None or not member.is_voter:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Node {voter.node_id} is not a voter.")
    await _alter(store, node_id, [NodeChange(voter.node_id, NodeAction.DEMOTE)], cluster_id, REMOVAL_SECONDS)
    await _wait(store, node_id, voter.node_id, REMOVAL_SECONDS, votes=False)


async def _find_member(
    store: MetadataStore, node_id: int, voter: VoterKey, cluster_id: str | None
) -> QuorumMember | None:
    """Return the member, or None if it has not joined.

    Raises:
        KafkaError: The directory id is not that of the member.
    """
    await refresh_image(store)
    check_nodes_can_change(store.image, cluster_id)
    member = (await describe_members(store, node_id)).get(voter.node_id)
    broker = store.image.brokers.get(voter.node_id)
    known = member.directory_id if member is not None else broker.directory_id if broker is not None else ZERO_ID
    if ZERO_ID not in (voter.directory_id, known) and voter.directory_id != known:
        message = f"Node {voter.node_id} has directory id {format_id(known)}, not {format_id(voter.directory_id)}."
        raise KafkaError(ErrorCode.INVALID_VOTER_KEY, message)
    return member


async def _alter(
    store: MetadataStore, node_id: int, changes: list[NodeChange], cluster_id: str | None, seconds: float
) -> None:
    outcomes = await alter_nodes(
        store, node_id, changes, cluster_id=cluster_id, seconds=seconds, may_promote_absent=True
    )
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def _wait(store: MetadataStore, node_id: int, voter_id: int, seconds: float, *, votes: bool) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await _does_vote(store, node_id, voter_id) == votes:
                    return
                await asyncio.sleep(POLL_INTERVAL_SECONDS)
    except TimeoutError:
        state = "is not a voter yet" if votes else "is still a voter"
        message = f"Node {voter_id} {state}; the controller continues with the change."
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None


async def _does_vote(store: MetadataStore, node_id: int, voter_id: int) -> bool | None:
    """Return whether the node is a voter, or None if the leader cannot be reached."""
    try:
        member = (await describe_members(store, node_id)).get(voter_id)
    except KafkaError:
        return None
    return member is not None and member.is_voter
