"""Bootstrap of a cluster: only nodes with empty disks may do it, and only if none of them knows an existing cluster.

Raft counts votes of unknown disks only before the first log entry. A replaced empty disk looks like a new one, so two
of them could elect a leader next to a cluster that they have forgotten. The vote requests of that first election pass
through a gate; all other messages are unaffected. To Raft, a closed gate is a network that loses messages, which is
always safe.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from chronik.raft import rules
from chronik.raft.membership import UNBOUND_DIRECTORY
from chronik.raft.messages import AnyRaftMessage, VoteRequest

BOOTSTRAP_WAIT_SECONDS: Final = 5.0
"""Seconds that nodes with empty disks wait for all others before a majority of them proceeds. A node that starts at the
same time and has a log to read responds within this time."""


class ClusterBootstrap:
    """The decision whether a node may bootstrap a cluster. No I/O: responses and times are passed in."""

    def __init__(self, node_id: int, nodes: Collection[int], voters: Collection[int], began: float) -> None:
        """`voters` are the nodes that elect the first leader."""
        self._nodes = frozenset(nodes)
        self._voters = frozenset(voters)
        self._empty = {node_id}
        self._began = began
        self.is_forbidden = False

    def record_response(self, node_id: int, knows_cluster: bool) -> None:
        """Record a peer's response; a known cluster forbids bootstrapping permanently."""
        if knows_cluster:
            self.is_forbidden = True
        else:
            self._empty.add(node_id)

    def is_allowed(self, now: float) -> bool:
        """Return whether to bootstrap: at once if all nodes have responded, with a majority after a waiting time."""
        if self.is_forbidden:
            return False
        has_waited = now - self._began >= BOOTSTRAP_WAIT_SECONDS
        return not self.missing_nodes or (has_waited and rules.has_quorum(self._empty, self._voters))

    @property
    def missing_nodes(self) -> list[int]:
        """Return the nodes that have not responded."""
        return sorted(self._nodes - self._empty)


def is_bootstrap_vote(message: AnyRaftMessage) -> bool:
    """Return whether the message is a vote request to a disk with unknown id, which only the first election sends."""
    return isinstance(message, VoteRequest) and message.target_directory == UNBOUND_DIRECTORY


class BootstrapGate:
    """A message filter that drops the vote requests of the first election until bootstrapping is allowed."""

    is_open = False

    def passes(self, message: AnyRaftMessage) -> bool:
        """Return whether the message may be sent or received."""
        return self.is_open or not is_bootstrap_vote(message)
