"""Incoming peer connections that are not authenticated yet.

Their number is limited separately from the peers. When the limit is reached, a new connection evicts another
unauthenticated one, never a peer, so that a flood of connections evicts mostly its own. A restarting node sends its
hello within milliseconds, and after that its connection is among the last to be evicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chronik.peers.connection import PeerConnection

UNAUTHENTICATED_MAX: Final = 1024
"""Maximum number of unauthenticated connections, each of which uses a file descriptor and a few kB.

Far more than a cluster has members, and twice the number accepted per event-loop iteration, so that no connection is
evicted before its first data could be read."""
LISTEN_BACKLOG: Final = UNAUTHENTICATED_MAX // 2
"""Backlog of the listening socket. Connections beyond it are retried by TCP after a second, which delays a restarting
node."""
PRIORITIES: Final = 4


class UnauthenticatedConnections:
    """The unauthenticated connections of the peer listener, by eviction priority."""

    def __init__(self, known_hosts: Iterable[str] = ()) -> None:
        """Create an empty set. `known_hosts` are the hosts of the configured peers."""
        self._by_priority: list[dict[PeerConnection, None]] = [{} for _ in range(PRIORITIES)]  # oldest first
        self._known_hosts = set(known_hosts)

    def __len__(self) -> int:
        return sum(map(len, self._by_priority))

    def list_connections(self) -> list[PeerConnection]:
        return [connection for each in self._by_priority for connection in each]

    def add_known_host(self, host: str) -> None:
        """Add a host on which a peer runs."""
        self._known_hosts.add(host)

    def add(self, connection: PeerConnection) -> PeerConnection | None:
        """Add a connection and return the one that must be closed for it, if any."""
        evicted = self._pop_lowest_priority() if len(self) >= UNAUTHENTICATED_MAX else None
        self._by_priority[0][connection] = None
        return evicted

    def discard(self, connection: PeerConnection) -> None:
        for each in self._by_priority:
            each.pop(connection, None)

    def _pop_lowest_priority(self) -> PeerConnection | None:
        """Remove and return the oldest connection of the lowest priority.

        Priorities are updated lazily: each connection moves up at most three times, so the cost per connection is
        constant.
        """
        for priority, connections in enumerate(self._by_priority):
            while connections:
                connection = next(iter(connections))
                del connections[connection]
                current_priority = self._priority(connection)
                if current_priority <= priority:
                    return connection
                self._by_priority[current_priority][connection] = None
        return None

    def _priority(self, connection: PeerConnection) -> int:
        """Return a connection's priority: higher after a valid hello, and for connections from a peer's host."""
        return 2 * connection.has_received_hello + (connection.host in self._known_hosts)
