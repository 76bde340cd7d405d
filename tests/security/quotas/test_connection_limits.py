from __future__ import annotations

import pytest

from chronik.configs.validators import validate_address_counts
from chronik.metadata.records import Entity, QuotaValues
from chronik.security.quotas.connection_limits import (
    BURST_SECONDS,
    CONNECTIONS_PER_ADDRESS,
    CONNECTIONS_PER_ADDRESS_OVERRIDES,
    CREATION_RATE,
    ConnectionLimits,
)
from chronik.security.quotas.entities import INT_MAX
from chronik.security.quotas.policy import QuotaPolicy

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Configs(dict[str, str]):
    def broker_value(self, name: str) -> str:
        return self.get(name, "" if name == CONNECTIONS_PER_ADDRESS_OVERRIDES else str(INT_MAX))

    def broker_int(self, name: str) -> int:
        return int(self.broker_value(name))


def limits(quotas: dict[Entity, QuotaValues] | None = None, **configs: str) -> ConnectionLimits:
    policy = QuotaPolicy(quotas or {})
    return ConnectionLimits(Configs({name.replace("_", "."): value for name, value in configs.items()}), lambda: policy)


def accept(limited: ConnectionLimits, host: str = HERE, now: float = 0.0) -> bool:
    return not limited.accept(host, now).rejection_reason


def test_connections_are_unlimited_by_default() -> None:
    limited = limits()
    assert all(accept(limited) for _ in range(10_000))


def test_connections_per_address_are_limited() -> None:
    limited = limits(max_connections_per_ip="2")
    assert [accept(limited) for _ in range(3)] == [True, True, False]
    assert accept(limited, THERE)
    limited.release(HERE)
    assert [accept(limited) for _ in range(2)] == [True, False]
    assert CONNECTIONS_PER_ADDRESS in limited.accept(HERE, 0).rejection_reason
    for host in (HERE, HERE, THERE):
        limited.release(host)
    assert not limited._counts, "addresses without connections are removed"


def test_address_overrides_apply_to_any_notation() -> None:
    limited = limits(max_connections_per_ip="0", max_connections_per_ip_overrides=f"{HERE}:1, [::1]:2, ::2:1")
    assert [accept(limited, f"::ffff:{HERE}"), accept(limited), accept(limited, THERE)] == [True, False, False]
    assert [accept(limited, "::1") for _ in range(3)] == [True, True, False]
    assert accept(limited, "::2")


@pytest.mark.parametrize("value", ["", "10.0.0.1:5", "10.0.0.1:5, ::1:7,[fe80::1]:0"])
def test_valid_address_overrides_are_accepted(value: str) -> None:
    assert validate_address_counts(value) is None


@pytest.mark.parametrize("value", ["10.0.0.1", "a.example:5", "10.0.0.1:-1", "10.0.0.1:5,", ":5"])
def test_invalid_address_overrides_are_rejected(value: str) -> None:
    assert validate_address_counts(value) == "a list of ADDRESS:COUNT"


def test_connection_rate_per_address_is_limited_and_rejections_do_not_count() -> None:
    limited = limits({(("ip", HERE),): {"connection_creation_rate": 5.0}})
    burst = int(5 * BURST_SECONDS)
    assert all(accept(limited) for _ in range(burst))
    assert not any(accept(limited) for _ in range(1000))
    assert accept(limited, THERE)
    accepted = sum(accept(limited, HERE, number / 100) for number in range(2000))
    assert accepted == pytest.approx(20 * 5, abs=1)
    assert "connection_creation_rate" in limited.accept(HERE, 19.99).rejection_reason


def test_default_connection_rate_applies_to_each_address() -> None:
    limited = limits({(("ip", ""),): {"connection_creation_rate": 1.0}})
    for host in (HERE, THERE):
        assert [accept(limited, host) for _ in range(11)] == [True] * 10 + [False]


def test_connections_above_total_rate_are_delayed_then_rejected() -> None:
    limited = limits(max_connection_creation_rate="100")
    assert {limited.accept(HERE, 0.0) for _ in range(1000)} == {("", 0.0)}
    decisions = [limited.accept(THERE, 0.0) for _ in range(101)]
    assert [round(each.throttle_seconds, 2) for each in decisions[:100]] == [round(n / 100, 2) for n in range(1, 101)]
    assert CREATION_RATE in decisions[100].rejection_reason
    assert limited.accept(HERE, 1.0).throttle_seconds == pytest.approx(0.01)


def test_connections_rejected_by_address_do_not_delay_others() -> None:
    limited = limits({(("ip", HERE),): {"connection_creation_rate": 1.0}}, max_connection_creation_rate="10")
    for _ in range(1000):
        accept(limited)
    assert limited.accept(THERE, 0.0) == ("", 0.0)
