from __future__ import annotations

from chronik.broker.requests.client_allowances import ClientAllowances, client_of
from chronik.exchange import Peer
from chronik.limits import QUOTA_BUCKETS_MAX
from chronik.principals import Principal

CLIENT = ("User:somebody", "10.0.0.1")


def test_client_tokens_are_refilled_over_time() -> None:
    allowances = ClientAllowances(10, seconds=5.0)
    assert [allowances.take(CLIENT, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not allowances.take(CLIENT, 0.4)
    assert allowances.take(CLIENT, 0.5)
    assert not allowances.take(CLIENT, 0.5)
    assert [allowances.take(CLIENT, 100.0) for _ in range(11)] == [True] * 10 + [False]


def test_clients_are_identified_by_principal_and_address() -> None:
    allowances = ClientAllowances(1, seconds=1.0)
    peers = [Peer(host, 1, 1, principal=Principal("User", name)) for host in ("h1", "h2") for name in ("ada", "bob")]
    assert all(allowances.take(client_of(peer), 0.0) for peer in peers)
    assert not any(allowances.take(client_of(peer), 0.0) for peer in peers)


def test_number_of_tracked_clients_is_bounded() -> None:
    allowances = ClientAllowances(1, seconds=1000.0)
    for number in range(QUOTA_BUCKETS_MAX + 10):
        assert allowances.take(("User:somebody", str(number)), 0.0)
    assert len(allowances._buckets) <= QUOTA_BUCKETS_MAX
