"""Snapshot transfer between nodes in chunks; each chunk is sent after the previous one is durable on the receiver.

Every chunk contains the snapshot's metadata: index, term, membership, size and checksum. A receiver resumes a partial
transfer of the same snapshot, even from another leader.
"""

from __future__ import annotations

from chronik.errors import check_invariant
from chronik.raft import rules
from chronik.raft.core import RaftCore
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.events import SnapshotChunkRead, SnapshotChunkRequest, SnapshotTaken, StoreChunk
from chronik.raft.messages import AppendAck, SnapshotAck, SnapshotChunk
from chronik.raft.pending_writes import IncomingSnapshot
from chronik.raft.progress import PeerProgress, SnapshotTransfer

# ------------------------------------------------------------------------------------------------------------- leader


def start_snapshot_transfer(core: RaftCore, node_id: int, peer: PeerProgress) -> None:
    """Start to send the leader's snapshot to an active peer that needs compacted log entries."""
    check_invariant(core.snapshot.index >= core.log.compacted_index, "Raft: log is compacted beyond the snapshot")
    if peer.is_recently_active:
        _request_snapshot_chunk(core, node_id, peer.start_snapshot(core.snapshot))


def _request_snapshot_chunk(core: RaftCore, node_id: int, transfer: SnapshotTransfer) -> None:
    transfer.is_chunk_read_pending = True
    transfer.waiting_ticks = 0
    request = SnapshotChunkRequest(node_id, transfer.snapshot.index, transfer.offset, core.config.snapshot_chunk_bytes)
    core.chunk_requests.append(request)


def on_chunk_read(core: RaftCore, event: SnapshotChunkRead) -> None:
    peer = core.peers.get(event.peer)
    transfer = peer.transfer if peer is not None else None
    if peer is None or transfer is None or not transfer.is_chunk_read_pending:
        return
    if (event.index, event.offset) != (transfer.snapshot.index, transfer.offset):
        return
    transfer.is_chunk_read_pending = False
    if event.data is None:
        peer.abort_snapshot()  # a newer snapshot has replaced it and will be sent instead
    else:
        core.send(SnapshotChunk, event.peer, snapshot=transfer.snapshot, offset=event.offset, data=event.data)


def on_snapshot_ack(core: RaftCore, message: SnapshotAck) -> None:
    peer = core.peers.get(message.source)
    if peer is None or peer.transfer is None or not peer.matches_directory(message.source_directory):
        return
    transfer = peer.transfer
    is_expected = message.index == transfer.snapshot.index and message.next_offset <= transfer.snapshot.size_bytes
    if is_expected and not transfer.is_chunk_read_pending and message.next_offset != transfer.offset:
        transfer.offset = message.next_offset
        _request_snapshot_chunk(core, message.source, transfer)


def tick(core: RaftCore) -> None:
    """Send a snapshot chunk again if its acknowledgement is overdue."""
    for node_id, peer in core.peers.items():
        transfer = peer.transfer
        if transfer is None or transfer.is_chunk_read_pending:
            continue
        transfer.waiting_ticks += 1
        if transfer.waiting_ticks >= core.config.snapshot_retry_ticks and peer.is_recently_active:
            _request_snapshot_chunk(core, node_id, transfer)


# ----------------------------------------------------------------------------------------------------------- follower


def on_snapshot_chunk(core: RaftCore, message: SnapshotChunk) -> None:
    snapshot = message.snapshot
    if core.writes.install is not None:
        return  # a complete snapshot must be installed before chunks of another one are written; the leader retries
    if not _is_snapshot_needed(core, snapshot):
        core.incoming_snapshot = None
        core.commit_through(snapshot.index)
        core.reply(message, AppendAck, match_index=core.commit)
        return
    if core.incoming_snapshot is None or core.incoming_snapshot.snapshot != snapshot:
        core.incoming_snapshot = IncomingSnapshot(snapshot)
    incoming = core.incoming_snapshot
    if message.offset == incoming.next_offset:
        incoming.add_chunk(message.data)
        core.writes.chunks.append(StoreChunk(snapshot, message.offset, message.data))
        if incoming.is_finished:
            _finish_snapshot_transfer(core, message, incoming)
            return
    core.reply(message, SnapshotAck, index=snapshot.index, next_offset=incoming.next_offset)


def _is_snapshot_needed(core: RaftCore, snapshot: SnapshotMetadata) -> bool:
    """Return whether a received snapshot must replace the log."""
    return rules.is_snapshot_needed(snapshot.index, core.commit, core.log.term_at(snapshot.index), snapshot.term)


def _finish_snapshot_transfer(core: RaftCore, message: SnapshotChunk, incoming: IncomingSnapshot) -> None:
    core.incoming_snapshot = None
    snapshot = incoming.snapshot
    if not rules.is_snapshot_complete(incoming.next_offset, incoming.checksum, snapshot.size_bytes, snapshot.checksum):
        core.reply(message, SnapshotAck, index=snapshot.index, next_offset=0)
        return
    install_snapshot(core, snapshot)
    core.reply(message, AppendAck, match_index=snapshot.index)


def install_snapshot(core: RaftCore, snapshot: SnapshotMetadata) -> None:
    """Replace the log with a completely received snapshot.

    The state machine loads the snapshot after that.
    """
    check_invariant(
        snapshot.index > core.commit, f"Raft: snapshot {snapshot.index} is older than commit index {core.commit}"
    )
    core.snapshot = snapshot
    core.writes.install = snapshot
    core.writes.compact_through = 0
    core.restore_after_sequence = core.writes.next_sequence
    core.log.install_snapshot(snapshot)
    core.memberships.replace(snapshot.index, snapshot.membership)
    core.commit_through(snapshot.index)
    core.adopt_membership()


# ---------------------------------------------------------------------------------------------------------- all roles


def on_snapshot_taken(core: RaftCore, event: SnapshotTaken) -> None:
    """Adopt a snapshot that was taken locally, and compact the log."""
    if event.snapshot.index <= core.snapshot.index:
        return  # a newer snapshot was received from the leader
    check_invariant(event.snapshot.index <= core.applied, "Raft: snapshot contains entries that are not applied")
    check_invariant(event.compact_through <= event.snapshot.index, "Raft: compaction beyond the snapshot")
    core.snapshot = event.snapshot
    core.memberships.compact_through(event.snapshot.index)
    if event.compact_through > core.log.compacted_index:
        core.log.compact_through(event.compact_through)
        core.writes.compact_through = event.compact_through
