"""Counting who holds what: the only place where a leader moves the commit index."""

from __future__ import annotations

from chronik.errors import invariant
from chronik.raft import rules
from chronik.raft.core import RaftCore
from chronik.raft.roles import Role


def advance(core: RaftCore) -> None:
    """After a peer's answer, after our own disk's, and after a change of who counts."""
    invariant(core.role is Role.LEADER, "only a leader counts")
    index = rules.quorum_index([_match_of(core, voter) for voter in core.membership.voters])
    if index > core.commit and rules.may_commit(core.log.term(index), core.term):
        core.commit_through(index)


def _match_of(core: RaftCore, voter: int) -> int:
    if voter == core.node_id:
        return rules.own_match(core.log.durable_index, core.log.last_index)
    peer = core.peers[voter]
    return peer.match if core.counts(voter, peer.directory_id) else 0
