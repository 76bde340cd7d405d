"""A limit on the number of ids that one client may create, enforced by token buckets."""

from __future__ import annotations

from chronik.exchange import Peer
from chronik.security.quotas.buckets import Buckets

Client = tuple[str, str]
"""A client's principal and address."""


def client_of(peer: Peer) -> Client:
    return str(peer.principal), peer.host


class ClientAllowances:
    """A token bucket per client.

    A client may take `count` tokens at once, and its bucket is refilled evenly within `seconds`. So it never has more
    than twice `count` ids that expire after `seconds`.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self._rate = count / seconds
        self._buckets: Buckets[Client] = Buckets(seconds)

    def take(self, client: Client, now: float) -> bool:
        """Take one token. Return False if the client's bucket is empty."""
        bucket = self._buckets.of(client, self._rate, now)
        if bucket.held < 1:
            return False
        bucket.held -= 1
        return True
