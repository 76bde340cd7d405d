from __future__ import annotations

from chronik.limits import TRACKED_QUOTA_ENTITIES_MAX
from chronik.principals import Principal
from chronik.request_reply import ConnectedClient
from chronik.security.quotas.token_buckets import ClientRateLimiter, client_key

CLIENT = ("User:somebody", "10.0.0.1")


def test_client_tokens_are_refilled_over_time() -> None:
    allowances = ClientRateLimiter(10, seconds=5.0)
    assert [allowances.try_acquire(CLIENT, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not allowances.try_acquire(CLIENT, 0.4)
    assert allowances.try_acquire(CLIENT, 0.5)
    assert not allowances.try_acquire(CLIENT, 0.5)
    assert [allowances.try_acquire(CLIENT, 100.0) for _ in range(11)] == [True] * 10 + [False]


def test_clients_are_identified_by_principal_and_address() -> None:
    allowances = ClientRateLimiter(1, seconds=1.0)
    peers = [
        ConnectedClient(host, 1, 1, principal=Principal("User", name))
        for host in ("h1", "h2")
        for name in ("ada", "bob")
    ]
    assert all(allowances.try_acquire(client_key(peer), 0.0) for peer in peers)
    assert not any(allowances.try_acquire(client_key(peer), 0.0) for peer in peers)


def test_number_of_tracked_clients_is_bounded() -> None:
    allowances = ClientRateLimiter(1, seconds=1000.0)
    for number in range(TRACKED_QUOTA_ENTITIES_MAX + 10):
        assert allowances.try_acquire(("User:somebody", str(number)), 0.0)
    assert len(allowances._buckets) <= TRACKED_QUOTA_ENTITIES_MAX
