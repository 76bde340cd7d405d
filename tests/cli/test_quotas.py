from __future__ import annotations

import pytest

from chronik.testing.plugin import BrokerFactory

from .command_line import run_chronik

pytestmark = pytest.mark.slow


def test_quotas_are_set_listed_and_removed(chronik_broker_factory: BrokerFactory) -> None:
    bootstrap = chronik_broker_factory().bootstrap

    def quotas(*arguments: str) -> list[str]:
        return run_chronik("quotas", *arguments, bootstrap=bootstrap).lines

    set_ = quotas("set", "--user", "alice", "--producer-byte-rate", "1M", "--request-percentage", "12.5")
    assert set_ == ["user alice: producer_byte_rate set to 1000000", "user alice: request_percentage set to 12.5"]
    quotas("set", "--default-user", "--client-id", "c", "--consumer-byte-rate", "500k")
    quotas("set", "--default-ip", "--connection-creation-rate", "100")
    assert [line.split() for line in quotas("list")] == [
        ["USER", "CLIENT", "ID", "IP", "QUOTA", "VALUE"],
        ["<default>", "c", "-", "consumer_byte_rate", "500000"],
        ["-", "-", "<default>", "connection_creation_rate", "100"],
        ["alice", "-", "-", "producer_byte_rate", "1000000"],
        ["alice", "-", "-", "request_percentage", "12.5"],
    ]
    assert run_chronik("quotas", "list", "--user", "alice", "--json", bootstrap=bootstrap).json == [
        {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1000000.0, "request_percentage": 12.5}}
    ]
    assert len(quotas("list", "--default-user")) == 2
    assert quotas("remove", "--user", "alice", "--producer-byte-rate") == ["user alice: producer_byte_rate removed"]
    assert quotas("remove", "--user", "alice") == ["user alice: request_percentage removed"]
    assert quotas("remove", "--user", "alice") == []
    assert len(quotas("list")) == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["set", "--user", "a"], "no quota given: use one of --producer-byte-rate"),
        (["set", "--producer-byte-rate", "1"], "no entity given: use --user, --client-id or --ip"),
        (["set", "--user", "a", "--connection-creation-rate", "1"], "Invalid configuration key"),
        (["set", "--ip", "nowhere.example", "--connection-creation-rate", "1"], "is not a valid IP"),
        (["set", "--ip", "10.0.0.1", "--user", "a", "--producer-byte-rate", "1"], "should not be combined"),
    ],
)
def test_invalid_quota_options_print_one_line_error(
    chronik_broker_factory: BrokerFactory, arguments: list[str], expected: str
) -> None:
    done = run_chronik("quotas", *arguments, bootstrap=chronik_broker_factory().bootstrap)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert expected in done.err


@pytest.mark.parametrize("text", ["0", "-1", "1T", "much"])
def test_invalid_rate_is_rejected(text: str) -> None:
    done = run_chronik("quotas", "set", "--user", "a", f"--producer-byte-rate={text}")
    assert done.code == 2
    assert "expected a number greater than 0, such as 1000000, 500k or 12.5" in done.err
