"""`chronik apply` and `chronik export` on a broker with authentication and an authorizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chronik.cli.apply import executor
from chronik.cli.main import main
from chronik.client.access.settings import BootstrapAccess, parse_security
from chronik.client.admin import NewTopic, create_topics, list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ConnectionLost
from chronik.client.partitions import set_replication_throttle
from chronik.client.security import list_users
from chronik.testing.plugin import BrokerFactory
from chronik.testing.secured import SecuredBroker

pytestmark = pytest.mark.slow

FILE = """
[broker]
"message.max.bytes" = 2_000_000

[topics.orders]
partitions = 3
configs = { "retention.ms" = 86_400_000, "cleanup.policy" = "compact" }

[topics."orders.late"]
partitions = 1

[users.admin]
[users.alice]
mechanisms = ["SCRAM-SHA-256"]
password_file = "alice.password"
[users.bob]
mechanisms = { SCRAM-SHA-512 = 8192 }
password_env = "BOB_PASSWORD"

[[acls]]
principal = "User:alice"
topic = "orders"
pattern = "prefixed"
operations = ["Read", "Write"]

[[acls]]
principal = "User:bob"
cluster = true
operations = ["Describe"]
host = "127.0.0.1"
permission = "deny"

[[quotas]]
user = "alice"
producer_byte_rate = 1_000_000
request_percentage = 12.5

[[quotas]]
default_ip = true
connection_creation_rate = 1000
"""
STEPS = """\
  1. alter all brokers: message.max.bytes (not set) -> 2000000
  2. create topic orders with 3 partitions, retention.ms=86400000 and cleanup.policy=compact
  3. create topic orders.late with 1 partition
  4. create user alice with SCRAM-SHA-256
  5. create user bob with SCRAM-SHA-512
  6. alter quotas of user alice: producer_byte_rate (not set) -> 1000000, request_percentage (not set) -> 12.5
  7. alter quotas of ip <default>: connection_creation_rate (not set) -> 1000
  8. create ACL: User:alice may Read on Topic names that start with orders
  9. create ACL: User:alice may Write on Topic names that start with orders
  10. create ACL: User:bob may not Describe on Cluster from 127.0.0.1
"""
PASSWORD = "through the looking glass"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def broker() -> Iterator[SecuredBroker]:
    with SecuredBroker() as runner:
        assert isinstance(runner, SecuredBroker)
        yield runner


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with the file and a password; the working directory is another one."""
    (tmp_path / "cluster.toml").write_text(FILE)
    (tmp_path / "alice.password").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("BOB_PASSWORD", PASSWORD)
    return tmp_path


@pytest.fixture
def chronik(
    broker: SecuredBroker, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    settings = folder / "admin.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in broker.settings().items()))
    monkeypatch.setenv("CHRONIK_BOOTSTRAP_SERVER", broker.bootstrap)
    monkeypatch.setenv("CHRONIK_CLIENT_CONFIG", str(settings))
    return runner(capsys)


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Outcome:
        capsys.readouterr()
        return Outcome(main(list(map(str, words))), *capsys.readouterr())

    return run


def topics(cluster: ClusterClient) -> dict[str, int]:
    return {topic.name or "": len(topic.partitions) for topic in list_topics(cluster)}


def can_log_in(broker: SecuredBroker, user: str, mechanism: str) -> bool:
    login = {"sasl.username": user, "sasl.password": PASSWORD, "sasl.mechanism": mechanism}
    with ClusterClient(BootstrapAccess(broker.bootstrap, parse_security(broker.settings() | login))) as cluster:
        cluster.metadata([])
    return True


def test_apply_executes_plan_and_second_run_changes_nothing(broker: SecuredBroker, folder: Path, chronik: Run) -> None:
    file = folder / "cluster.toml"
    planned = chronik("apply", file, "--dry-run")
    assert planned == Outcome(2, f"{STEPS}unchanged: 1 user\n", "")
    with broker.cluster() as cluster:
        assert topics(cluster) == {}
        assert list(list_users(cluster)) == ["admin"]
        done = chronik("apply", file, "--yes")
        assert done == Outcome(0, f"{STEPS}unchanged: 1 user\n8 steps applied\n", "")
        assert topics(cluster) == {"orders": 3, "orders.late": 1}
        assert list_users(cluster)["bob"] == {"SCRAM-SHA-512": 8192}
    assert can_log_in(broker, "alice", "SCRAM-SHA-256")
    assert can_log_in(broker, "bob", "SCRAM-SHA-512")
    output = "unchanged: 1 broker config, 2 topics, 3 users, 3 quotas and 3 ACLs\nno changes needed\n"
    assert chronik("apply", file) == Outcome(0, output, ""), "an empty plan needs no confirmation"
    assert chronik("apply", file, "--dry-run", "--prune") == Outcome(0, output, "")


def test_applying_export_to_same_cluster_changes_nothing(broker: SecuredBroker, folder: Path, chronik: Run) -> None:
    assert chronik("apply", folder / "cluster.toml", "--yes").code == 0
    with broker.cluster() as cluster:
        create_topics(cluster, [NewTopic("__chronik_pipelines", 1, 1)])
        set_replication_throttle(cluster, ["orders"], 1000)
    exported = chronik("export")
    assert exported.code == 0, exported.err
    assert PASSWORD not in exported.out
    assert "__" not in exported.out
    assert "throttled" not in exported.out
    (folder / "now.toml").write_text(exported.out)
    again = chronik("apply", folder / "now.toml", "--dry-run", "--prune")
    assert (again.code, again.out.splitlines()[-1]) == (0, "no changes needed"), again
    assert chronik("export").out == exported.out
    (folder / "nothing.toml").write_text("[topics]\n[broker]\n")
    pruned = chronik("apply", folder / "nothing.toml", "--yes", "--prune")
    assert pruned.code == 0, pruned.err
    with broker.cluster() as cluster:
        assert topics(cluster) == {"__chronik_pipelines": 1}, "internal topics and other sections are unchanged"
        assert list(list_users(cluster)) == ["admin", "alice", "bob"]


def test_apply_alters_differences_and_rejects_fewer_partitions(
    broker: SecuredBroker, folder: Path, chronik: Run
) -> None:
    file = folder / "cluster.toml"
    assert chronik("apply", file, "--yes").code == 0
    other = FILE.replace("partitions = 3", "partitions = 5").replace("86_400_000", "1000").replace("12.5", "50")
    other = other.replace('["SCRAM-SHA-256"]', '["SCRAM-SHA-256", "SCRAM-SHA-512"]')
    file.write_text(other.replace("[topics.orders]", "[topics.orders]\nreplication_factor = 2"))
    altered = chronik("apply", file, "--yes")
    assert altered.out.splitlines() == [
        "  1. alter topic orders: partitions 3 -> 5",
        "  2. alter topic orders: retention.ms 86400000 -> 1000",
        "  3. alter user alice: set the password for SCRAM-SHA-512",
        "  4. alter quotas of user alice: request_percentage 12.5 -> 50",
        "  topic orders has replication factor 1, but the file has 2: it is not changed;"
        " use chronik topics reassign to move replicas",
        "unchanged: 1 broker config, 1 topic, 2 users, 2 quotas and 3 ACLs",
        "4 steps applied",
    ]
    assert can_log_in(broker, "alice", "SCRAM-SHA-512")
    file.write_text(FILE.replace("partitions = 3", "partitions = 2") + "[topics.new]\n")
    refused = chronik("apply", file, "--yes")
    expected = (
        "chronik: topic orders has 5 partitions, but the file has 2: the number of partitions cannot be reduced\n"
    )
    assert refused == Outcome(1, "", expected)
    with broker.cluster() as cluster:
        assert "new" not in topics(cluster)


def test_apply_asks_for_separate_confirmation_of_deletions(
    broker: SecuredBroker, folder: Path, chronik: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chronik("apply", folder / "cluster.toml", "--yes").code == 0
    less = folder / "less.toml"
    less.write_text("acls = []\n[topics.orders]\n[topics.new]\npartitions = 1\n[users.bob]\n[broker]\n")
    less.write_text(less.read_text().replace("[users.bob]\n", '[users.bob]\nmechanisms = ["SCRAM-SHA-512"]\n'))
    shown = chronik("apply", less, "--dry-run")
    deletions = [
        "alter all brokers: message.max.bytes 2000000 -> (not set)",
        "delete topic orders.late and all its records",
        "alter topic orders: cleanup.policy compact -> (not set), retention.ms 86400000 -> (not set)",
        "delete user alice",
        "delete ACL: User:alice may Read on Topic names that start with orders",
        "delete ACL: User:alice may Write on Topic names that start with orders",
        "delete ACL: User:bob may not Describe on Cluster from 127.0.0.1",
    ]
    assert shown.code == 2
    assert shown.out.splitlines() == [
        "  1. create topic new with 1 partition",
        "  user admin is not in the file, but is kept: it is the user of this command",
        "not in the file (use --prune to delete):",
        *(f"  {each}" for each in deletions),
        "unchanged: 1 topic and 1 user",
    ]
    answers: list[str] = []
    monkeypatch.setattr("builtins.input", lambda: answers.pop(0))
    with broker.cluster() as cluster:
        answers[:] = ["n"]
        declined = chronik("apply", less, "--prune")
        assert (declined.code, declined.out.splitlines()[-1]) == (0, "Apply these changes? [y/N] No changes were made.")
        assert topics(cluster) == {"orders": 3, "orders.late": 1}
        answers[:] = ["y", "n"]
        kept = chronik("apply", less, "--prune")
        assert kept.out.splitlines()[-1] == (
            "Apply these changes? [y/N] Delete what the file does not list (5 steps)? [y/N] 1 step applied"
        ), kept
        assert topics(cluster) == {"new": 1, "orders": 3, "orders.late": 1}
        answers[:] = ["y"]
        assert chronik("apply", less, "--prune").code == 0
        assert topics(cluster) == {"new": 1, "orders": 3}
        assert list(list_users(cluster)) == ["admin", "bob"]
    assert chronik("apply", less, "--prune", "--dry-run").code == 0
    assert '"retention.ms"' not in chronik("export").out


def test_interrupted_apply_is_completed_by_next_run(
    broker: SecuredBroker, folder: Path, chronik: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ConnectionLost("the connection ended")

    with monkeypatch.context() as patched:
        patched.setattr(executor, "alter_quotas", fail)
        broken = chronik("apply", folder / "cluster.toml", "--yes")
    assert broken.code == 1
    assert broken.err == (
        "chronik: step failed after 5 of 8 steps: alter quotas of user alice: producer_byte_rate (not set)"
        " -> 1000000, request_percentage (not set) -> 12.5: the connection ended; run the command again"
        " to apply the rest\n"
    )
    rest = chronik("apply", folder / "cluster.toml", "--yes")
    assert (rest.code, rest.out.splitlines()[-1]) == (0, "3 steps applied")
    assert chronik("apply", folder / "cluster.toml", "--dry-run").code == 0


def test_apply_validates_all_steps_before_first_change(
    broker: SecuredBroker, folder: Path, chronik: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "cluster.toml"
    with broker.cluster() as cluster:
        monkeypatch.delenv("BOB_PASSWORD")
        raise_eof = chronik("apply", file, "--yes")
        assert (raise_eof.code, raise_eof.err) == (
            1,
            "chronik: environment variable BOB_PASSWORD is not set: expected a password\n",
        )
        monkeypatch.setenv("BOB_PASSWORD", PASSWORD)
        file.write_text(f"{FILE}\n[topics.wide]\nreplication_factor = 3\n")
        wide = chronik("apply", file, "--yes")
        assert wide.code == 1
        assert "topic wide" in wide.err
        contradiction = "min.compaction.lag.ms = 9\nmax.compaction.lag.ms = 8\n"
        create_topics(cluster, [NewTopic("torn", 1, 1)])
        file.write_text(f"{FILE}\n[topics.torn.configs]\n{contradiction}")
        torn = chronik("apply", file, "--yes")
        assert torn.code == 1
        assert "min.compaction.lag.ms = 9 must not exceed max.compaction.lag.ms = 8" in torn.err
        file.write_text(f"{FILE}\n[users.eve]\n")
        assert "user eve needs a password" in chronik("apply", file, "--dry-run").err
        file.write_text(f"{FILE}\n[topics.late]\npartitions = 0\n")
        assert f"{file}:{len(FILE.splitlines()) + 3}: topics.late.partitions = 0" in chronik("apply", file).err
        assert topics(cluster) == {"torn": 1}
        assert list(list_users(cluster)) == ["admin"]


def test_apply_prints_plan_as_json(folder: Path, chronik: Run) -> None:
    file = folder / "cluster.toml"
    assert chronik("apply", file, "--json").err == (
        "chronik: --json cannot ask for confirmation: use --yes or --dry-run\n"
    )
    planned = chronik("apply", file, "--dry-run", "--json")
    assert planned.code == 2
    expected = json.loads(planned.out)
    assert expected["nothing_to_do"] is False
    assert [(each["action"], each["kind"]) for each in expected["steps"]] == [
        ("alter", "broker configs"),
        *[("create", "topic")] * 2,
        *[("create", "user")] * 2,
        *[("alter", "quotas")] * 2,
        *[("create", "acl")] * 3,
    ]
    assert expected["steps"][3] == {
        "action": "create",
        "kind": "user",
        "name": "alice",
        "mechanisms": ["SCRAM-SHA-256"],
    }
    done = chronik("apply", file, "--yes", "--json")
    assert (done.code, json.loads(done.out)) == (0, expected)
    assert json.loads(chronik("apply", file, "--dry-run", "--json").out) == {
        "nothing_to_do": True,
        "steps": [],
        "prune": False,
        "deletions": [],
        "notes": [],
        "left_alone": {"broker config": 1, "topic": 2, "user": 3, "quota": 3, "ACL": 3},
    }
    file.write_text("[topics]\n")
    gone = json.loads(chronik("apply", file, "--dry-run", "--prune", "--json").out)
    assert [each["name"] for each in gone["deletions"]] == ["orders", "orders.late"]


def test_apply_rejects_acls_without_authorizer(
    chronik_broker_factory: BrokerFactory,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chronik = runner(capsys)
    monkeypatch.setenv("CHRONIK_BOOTSTRAP_SERVER", chronik_broker_factory().bootstrap)
    file = folder / "cluster.toml"
    expected = "the file has ACLs, but the cluster has no authorizer: set authorizer.class.name first"
    assert chronik("apply", file, "--yes") == Outcome(1, "", f"chronik: {expected}\n")
    file.write_text("acls = []\n[topics.a]\n")
    assert chronik("apply", file, "--yes").code == 0
    exported = chronik("export").out
    assert "acls" not in exported
    assert "[topics.a]" in exported
    file.write_text(exported)
    assert chronik("apply", file, "--dry-run", "--prune").code == 0


def test_apply_needs_permissions_only_for_sections_in_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chronik = runner(capsys)
    file, settings = folder / "topics.toml", folder / "carol.properties"
    file.write_text('[topics."team.a"]\npartitions = 2\nreplication_factor = 1\nconfigs = { retention.ms = 1000 }\n')
    with SecuredBroker(users={"carol": PASSWORD}) as broker:
        assert isinstance(broker, SecuredBroker)
        settings.write_text("".join(f"{key}={value}\n" for key, value in broker.settings("carol").items()))
        connection = ("-b", broker.bootstrap, "--client-config", settings)
        refused = chronik("apply", file, "--yes", *connection)
        assert refused.code == 1
        assert "topic team.a" in refused.err
        for operation in ("Create", "Alter", "DescribeConfigs", "AlterConfigs"):
            broker.allow("carol", operation, topic="team.a")
        assert chronik("apply", file, "--yes", *connection).out.splitlines()[-1] == "1 step applied"
        file.write_text(file.read_text().replace("partitions = 2", "partitions = 3").replace("1000", "2000"))
        assert chronik("apply", file, "--yes", *connection).out.splitlines()[-1] == "2 steps applied"
        assert chronik("apply", file, "--dry-run", "--prune", *connection).code == 0
        file.write_text("[users.carol]\n")
        assert "CLUSTER_AUTHORIZATION_FAILED" in chronik("apply", file, "--dry-run", *connection).err


def test_apply_fails_without_confirmation_when_stdin_is_closed(
    folder: Path, chronik: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_eof() -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", raise_eof)
    unanswered = chronik("apply", folder / "cluster.toml")
    assert unanswered.code == 1
    assert "no confirmation: stdin is closed; use --yes" in unanswered.err
