"""Who may found a cluster: nodes on empty disks, and only while none of them has heard of a cluster that exists.

Raft counts the votes of unknown disks only before the first entry of all. An empty disk that was replaced looks like
one that is new, so two of them could elect a leader beside a cluster that they have forgotten. The votes of that one
election, and nothing else, pass through the gate here. To Raft a closed gate is a network that loses messages, which
can do no harm.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from chronik.raft import rules
from chronik.raft.membership import UNBOUND
from chronik.raft.messages import AnyMessage, VoteRequest

FOUNDING_PATIENCE_SECONDS: Final = 5.0
"""How long nodes on empty disks wait for the word of all others before a majority of them goes ahead. A node that
starts at the same time, with a log to read, is there by then."""


class Founding:
    """The rule. Pure: told the answers and the time."""

    def __init__(self, node_id: int, nodes: Collection[int], voters: Collection[int], began: float) -> None:
        """`voters` are those of the nodes that elect the first leader."""
        self._nodes = frozenset(nodes)
        self._voters = frozenset(voters)
        self._empty = {node_id}
        self._began = began
        self.is_forbidden = False

    def answered(self, node_id: int, knows_cluster: bool) -> None:
        """Takes what a peer says about itself; once there is a cluster, there is one for ever."""
        if knows_cluster:
            self.is_forbidden = True
        else:
            self._empty.add(node_id)

    def is_allowed(self, now: float) -> bool:
        """Allowed at once when everybody has answered; with a majority, after the silent ones have had their time."""
        if self.is_forbidden:
            return False
        has_waited = now - self._began >= FOUNDING_PATIENCE_SECONDS
        return not self.silent or (has_waited and rules.has_quorum(self._empty, self._voters))

    @property
    def silent(self) -> list[int]:
        return sorted(self._nodes - self._empty)


def is_founding_word(message: AnyMessage) -> bool:
    """Whether it is from a candidate that does not know the disk it asks: such votes count only before any entry."""
    return isinstance(message, VoteRequest) and message.target_directory == UNBOUND


class Gate:
    """Founding words pass neither in nor out until `may_found`."""

    may_found = False

    def passes(self, message: AnyMessage) -> bool:
        return self.may_found or not is_founding_word(message)
