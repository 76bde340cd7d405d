from __future__ import annotations

import pytest

from chronik.configs.checks import connections_by_address
from chronik.metadata.security.quotas import Entity, Values
from chronik.security.quotas.connections import BURST_SECONDS, CREATION_RATE, OVERRIDES, PER_ADDRESS, ConnectionLimits
from chronik.security.quotas.entities import INT_MAX
from chronik.security.quotas.policy import Policy

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Configs(dict[str, str]):
    def broker(self, name: str) -> str:
        return self.get(name, "" if name == OVERRIDES else str(INT_MAX))

    def broker_int(self, name: str) -> int:
        return int(self.broker(name))


def limits(quotas: dict[Entity, Values] | None = None, **configs: str) -> ConnectionLimits:
    policy = Policy(quotas or {})
    return ConnectionLimits(Configs({name.replace("_", "."): value for name, value in configs.items()}), lambda: policy)


def come(limited: ConnectionLimits, host: str = HERE, now: float = 0.0) -> bool:
    return not limited.come(host, now).refusal


def test_without_limits_everybody_comes() -> None:
    limited = limits()
    assert all(come(limited) for _ in range(10_000))


def test_an_address_has_so_many_and_no_more() -> None:
    limited = limits(max_connections_per_ip="2")
    assert [come(limited) for _ in range(3)] == [True, True, False]
    assert come(limited, THERE)
    limited.left(HERE)
    assert [come(limited) for _ in range(2)] == [True, False]
    assert PER_ADDRESS in limited.come(HERE, 0).refusal
    for host in (HERE, HERE, THERE):
        limited.left(host)
    assert not limited._counts, "who is gone is forgotten"


def test_some_addresses_have_more_however_they_are_written() -> None:
    limited = limits(max_connections_per_ip="0", max_connections_per_ip_overrides=f"{HERE}:1, [::1]:2, ::2:1")
    assert [come(limited, f"::ffff:{HERE}"), come(limited), come(limited, THERE)] == [True, False, False]
    assert [come(limited, "::1") for _ in range(3)] == [True, True, False]
    assert come(limited, "::2")


@pytest.mark.parametrize("value", ["", "10.0.0.1:5", "10.0.0.1:5, ::1:7,[fe80::1]:0"])
def test_what_counts_of_addresses_may_be(value: str) -> None:
    assert connections_by_address(value) is None


@pytest.mark.parametrize("value", ["10.0.0.1", "a.example:5", "10.0.0.1:-1", "10.0.0.1:5,", ":5"])
def test_what_they_may_not_be(value: str) -> None:
    assert connections_by_address(value) == "a list of ADDRESS:COUNT"


def test_an_address_opens_so_many_in_a_second_and_what_is_refused_does_not_count() -> None:
    limited = limits({(("ip", HERE),): {"connection_creation_rate": 5.0}})
    at_once = int(5 * BURST_SECONDS)
    assert all(come(limited) for _ in range(at_once))
    assert not any(come(limited) for _ in range(1000))
    assert come(limited, THERE)
    came = sum(come(limited, HERE, number / 100) for number in range(2000))
    assert came == pytest.approx(20 * 5, abs=1)
    assert "connection_creation_rate" in limited.come(HERE, 19.99).refusal


def test_every_address_has_the_default_for_itself() -> None:
    limited = limits({(("ip", ""),): {"connection_creation_rate": 1.0}})
    for host in (HERE, THERE):
        assert [come(limited, host) for _ in range(11)] == [True] * 10 + [False]


def test_what_comes_too_fast_in_all_waits_a_little_and_is_then_refused() -> None:
    limited = limits(max_connection_creation_rate="100")
    assert {limited.come(HERE, 0.0) for _ in range(1000)} == {("", 0.0)}
    waits = [limited.come(THERE, 0.0) for _ in range(101)]
    assert [round(each.wait_seconds, 2) for each in waits[:100]] == [round(n / 100, 2) for n in range(1, 101)]
    assert CREATION_RATE in waits[100].refusal
    assert limited.come(HERE, 1.0).wait_seconds == pytest.approx(0.01)


def test_what_is_refused_to_an_address_does_not_make_others_wait() -> None:
    limited = limits({(("ip", HERE),): {"connection_creation_rate": 1.0}}, max_connection_creation_rate="10")
    for _ in range(1000):
        come(limited)
    assert limited.come(THERE, 0.0) == ("", 0.0)
