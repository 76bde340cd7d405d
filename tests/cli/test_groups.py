"""`chronik groups delete` and `chronik groups reset-offsets` as subprocesses."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer

from chronik.testing import Broker
from tests.cli.command_line import CommandResult, run_chronik

pytestmark = pytest.mark.slow

RECORDS = 10


class GroupCli:
    """`chronik` with a group that has read two of ten records in partition 0 of a topic with two partitions."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.group = f"group-of-{topic}"
        self._bootstrap = broker.bootstrap
        for partition in ("0", "1"):
            self("produce", topic, "-p", partition, stdin="".join(f"{number}\n" for number in range(RECORDS)))
        assert len(self("consume", topic, "-g", self.group, "-p", "0", "-n", "2").lines) == 2

    def __call__(self, *arguments: str, stdin: str = "") -> CommandResult:
        return run_chronik(*arguments, bootstrap=self._bootstrap, stdin=stdin)

    def reset(self, *options: str) -> CommandResult:
        return self("groups", "reset-offsets", self.group, *options)

    def plan(self, *options: str) -> dict[int, int]:
        return {each["partition"]: each["new_offset"] for each in self.reset(*options, "--json").json}

    def committed(self) -> dict[int, int]:
        (described,) = self("groups", "describe", self.group, "--json").json
        return {each["partition"]: each["committed"] for each in described["offsets"]}


@pytest.fixture
def group_cli(chronik_broker: Broker, chronik_topic: str) -> GroupCli:
    return GroupCli(chronik_broker, chronik_topic)


@pytest.mark.chronik_topic(partitions=2)
def test_reset_offsets_is_dry_run_by_default(group_cli: GroupCli) -> None:
    shown = group_cli.reset("--to-latest")
    assert "no offsets were changed" in shown.out
    assert group_cli.committed() == {0: 2}
    assert group_cli.plan("--to-latest", "--dry-run") == {0: RECORDS}
    assert group_cli.plan("--to-latest", "--execute") == {0: RECORDS}
    assert group_cli.committed() == {0: RECORDS}
    assert "no offsets were changed" not in group_cli.reset("--to-earliest", "--execute").out
    assert group_cli.committed() == {0: 0}


@pytest.mark.chronik_topic(partitions=2)
def test_reset_offsets_is_limited_to_offset_range(group_cli: GroupCli) -> None:
    assert group_cli.plan("--topic", group_cli.topic, "--to-offset", "7") == {0: 7, 1: 7}
    assert group_cli.plan("--topic", group_cli.topic, "--to-offset", "700") == {0: RECORDS, 1: RECORDS}
    assert group_cli.plan("--topic", f"{group_cli.topic}:1", "--to-latest") == {1: RECORDS}
    assert group_cli.plan("--topic", f"{group_cli.topic}:0,1", "--to-earliest") == {0: 0, 1: 0}
    assert group_cli.plan("--shift-by", "3") == {0: 5}
    assert group_cli.plan("--shift-by=-1") == {0: 1}
    assert group_cli.plan("--shift-by=-100") == {0: 0}
    assert group_cli.plan("--shift-by", "100") == {0: RECORDS}


@pytest.mark.chronik_topic(partitions=2)
def test_reset_offsets_to_datetime_and_duration(group_cli: GroupCli) -> None:
    day_ms = 24 * 3600 * 1000
    now_ms = time.time_ns() // 1_000_000
    for age_days in (3, 2, 1):
        record = json.dumps({"value": f"{age_days} days old", "partition": 1, "timestamp": now_ms - age_days * day_ms})
        group_cli(
            "produce", f"{group_cli.topic}-old", "--json", stdin=record.replace('"partition": 1', '"partition": 0')
        )
    topic = f"{group_cli.topic}-old"
    assert group_cli.plan("--topic", topic, "--by-duration", "P4D") == {0: 0}
    assert group_cli.plan("--topic", topic, "--by-duration", "P2DT12H") == {0: 1}
    assert group_cli.plan("--topic", topic, "--by-duration", "PT36H30M1.5S") == {0: 2}
    assert group_cli.plan("--topic", topic, "--by-duration", "PT1S") == {0: 3}, "no record is that recent"
    assert group_cli.plan("--topic", topic, "--to-datetime", str(now_ms - 2 * day_ms)) == {0: 1}
    timestamp = datetime.fromtimestamp((now_ms - 2 * day_ms + 1000) / 1000, tz=UTC)
    assert group_cli.plan("--topic", topic, "--to-datetime", timestamp.isoformat()) == {0: 2}
    assert group_cli.plan("--topic", topic, "--to-datetime", "1969-12-31T00:00:00") == {0: 0}


@pytest.mark.chronik_topic(partitions=2)
def test_groups_list_prints_members_and_lag(group_cli: GroupCli) -> None:
    (group,) = [each for each in group_cli("groups", "list", "--json").json if each["group"] == group_cli.group]
    assert group == {"group": group_cli.group, "state": "Empty", "protocol_type": "", "members": 0, "lag": RECORDS - 2}
    lines = group_cli("groups", "list").lines
    assert lines[0].split() == ["GROUP", "STATE", "PROTOCOL", "TYPE", "MEMBERS", "LAG"]
    assert [each.split()[-2:] for each in lines if group_cli.group in each] == [["0", str(RECORDS - 2)]]


def test_group_of_deleted_topic_has_no_lag(group_cli: GroupCli) -> None:
    group_cli("topics", "create", "for-a-moment", "--partitions", "1")
    group_cli("produce", "for-a-moment", stdin="a\nb\n")
    group_cli("consume", "for-a-moment", "--group", "reader-of-a-moment")
    group_cli("topics", "delete", "for-a-moment")
    found = [each for each in group_cli("groups", "list", "--json").json if each["group"] == "reader-of-a-moment"]
    assert [each["lag"] for each in found] in ([], [None])


@pytest.mark.chronik_topic(partitions=2)
def test_reset_offsets_rejects_invalid_options(group_cli: GroupCli) -> None:
    for options, why in (
        (("--topic", f"{group_cli.topic}:1", "--shift-by", "1"), "requires a committed offset"),
        (("--topic", f"{group_cli.topic}:7", "--to-latest"), "no partition 7"),
        (("--topic", f"{group_cli.topic}:x", "--to-latest"), "expected TOPIC"),
        (("--topic", f"{group_cli.topic}:0,{'1' * 5000}", "--to-latest"), "expected TOPIC"),
    ):
        result = group_cli.reset(*options)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert why in result.err
    assert group_cli.reset().code == 2
    assert group_cli.reset("--to-latest", "--to-earliest").code == 2
    assert group_cli.committed() == {0: 2}


@pytest.mark.chronik_topic(partitions=2)
def test_reset_offsets_creates_new_group(group_cli: GroupCli) -> None:
    group_cli.group = f"new-{group_cli.group}"
    assert "no committed offsets" in group_cli.reset("--to-latest").err
    assert group_cli.plan("--topic", group_cli.topic, "--to-offset", "4", "--execute") == {0: 4, 1: 4}
    assert group_cli.committed() == {0: 4, 1: 4}


@pytest.mark.chronik_topic(partitions=2)
def test_group_with_members_cannot_be_reset_or_deleted(group_cli: GroupCli, chronik_broker: Broker) -> None:
    settings = {"group.id": group_cli.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": chronik_broker.bootstrap, **settings})
    try:
        consumer.subscribe([group_cli.topic])
        assert consumer.poll(30) is not None
        result = group_cli.reset("--to-latest", "--execute")
        assert (result.code, "while the group has no members" in result.err) == (1, True)
        result = group_cli("groups", "delete", group_cli.group)
        assert (result.code, "NON_EMPTY_GROUP" in result.err) == (1, True)
    finally:
        consumer.close()
    assert group_cli.committed() == {0: 2}
    assert group_cli("groups", "delete", group_cli.group).lines == [f"deleted {group_cli.group}"]
    deleted_again = group_cli("groups", "delete", group_cli.group)
    assert (deleted_again.code, "GROUP_ID_NOT_FOUND" in deleted_again.err) == (1, True)
