"""A limit on the number of ids that one client may create, enforced by token buckets."""

from __future__ import annotations

from chronik.request_reply import ConnectedClient
from chronik.security.quotas.token_buckets import TokenBuckets

ClientKey = tuple[str, str]
"""A client's principal and address."""


def client_key(peer: ConnectedClient) -> ClientKey:
    return str(peer.principal), peer.host


class ClientRateLimiter:
    """A token bucket per client.

    A client may take `count` tokens at once, and its bucket is refilled evenly within `seconds`. So it never has more
    than twice `count` ids that expire after `seconds`.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self._rate = count / seconds
        self._buckets: TokenBuckets[ClientKey] = TokenBuckets(seconds)

    def try_acquire(self, client: ClientKey, now: float) -> bool:
        """Take one token. Return False if the client's bucket is empty."""
        bucket = self._buckets.get(client, self._rate, now)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
