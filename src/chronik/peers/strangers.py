"""Connections to the peers' port that have not shown who they are yet.

Room for them is limited, apart from the peers themselves. When it is full the next one takes the place of another,
never of a peer: so whoever floods the port only pushes out their own connections. A node that comes back has a few
milliseconds to say hello, which is all it needs, and after that it is the last to be pushed out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chronik.peers.connection import PeerConnection

STRANGERS_MAX: Final = 1024
"""Each costs a descriptor and a few kB for the time of a handshake. Far more than a cluster has members, and twice as
many as can be accepted in one turn of the loop: so no connection is pushed out before it could be heard."""

ACCEPTED_AT_ONCE_MAX: Final = STRANGERS_MAX // 2
"""Connections that wait to be accepted. Those that find no place among them come again after a second, by TCP's own
rules, which is long for a node that comes back."""

MERITS: Final = 4


class Strangers:
    def __init__(self, known_hosts: Iterable[str] = ()) -> None:
        """`known_hosts` are where peers are said to be."""
        self._by_merit: list[dict[PeerConnection, None]] = [{} for _ in range(MERITS)]  # the oldest first
        self._known_hosts = set(known_hosts)

    def __len__(self) -> int:
        return sum(map(len, self._by_merit))

    def all(self) -> list[PeerConnection]:
        return [connection for each in self._by_merit for connection in each]

    def know(self, host: str) -> None:
        """Notes a host where a peer is, or is said to be."""
        self._known_hosts.add(host)

    def add(self, connection: PeerConnection) -> PeerConnection | None:
        """Returns the connection that has to make room for it, if any."""
        pushed_out = self._least() if len(self) >= STRANGERS_MAX else None
        self._by_merit[0][connection] = None
        return pushed_out

    def discard(self, connection: PeerConnection) -> None:
        for each in self._by_merit:
            each.pop(connection, None)

    def _least(self) -> PeerConnection | None:
        """Takes out the oldest connection with the least merit. They are sorted as they are looked at: each moves up at
        most three times, so that a flood of them is dealt with as fast as it comes."""
        for merit, connections in enumerate(self._by_merit):
            while connections:
                connection = next(iter(connections))
                del connections[connection]
                risen = self._merit(connection)
                if risen <= merit:
                    return connection
                self._by_merit[risen][connection] = None
        return None

    def _merit(self, connection: PeerConnection) -> int:
        """One that names our cluster and us in a hello is hardly a stranger; one from a peer's machine may be about to
        say hello."""
        return 2 * connection.has_greeted + (connection.host in self._known_hosts)
