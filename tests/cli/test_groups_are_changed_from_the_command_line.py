"""`chronik groups delete` and `chronik groups reset-offsets`, as users run them."""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer

from chronik.cli.groups_change import parse_duration_ms
from chronik.testing import Broker
from tests.cli.running import Outcome, chronik

pytestmark = pytest.mark.slow

RECORDS = 10


class Line:
    """The command line, for one group of one topic with ten records in each of two partitions, two of them read."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.group = f"group-of-{topic}"
        self._bootstrap = broker.bootstrap
        for partition in ("0", "1"):
            self("produce", topic, "-p", partition, stdin="".join(f"{number}\n" for number in range(RECORDS)))
        assert len(self("consume", topic, "-g", self.group, "-p", "0", "-n", "2").lines) == 2

    def __call__(self, *arguments: str, stdin: str = "") -> Outcome:
        return chronik(*arguments, bootstrap=self._bootstrap, stdin=stdin)

    def reset(self, *options: str) -> Outcome:
        return self("groups", "reset-offsets", self.group, *options)

    def plan(self, *options: str) -> dict[int, int]:
        return {each["partition"]: each["new_offset"] for each in self.reset(*options, "--json").json}

    def committed(self) -> dict[int, int]:
        (described,) = self("groups", "describe", self.group, "--json").json
        return {each["partition"]: each["committed"] for each in described["offsets"]}


@pytest.fixture
def line(chronik_broker: Broker, chronik_topic: str) -> Line:
    return Line(chronik_broker, chronik_topic)


@pytest.mark.chronik_topic(partitions=2)
def test_offsets_are_shown_before_they_are_reset(line: Line) -> None:
    shown = line.reset("--to-latest")
    assert "Nothing was changed" in shown.out
    assert line.committed() == {0: 2}
    assert line.plan("--to-latest", "--dry-run") == {0: RECORDS}
    assert line.plan("--to-latest", "--execute") == {0: RECORDS}
    assert line.committed() == {0: RECORDS}
    assert "Nothing was changed" not in line.reset("--to-earliest", "--execute").out
    assert line.committed() == {0: 0}


@pytest.mark.chronik_topic(partitions=2)
def test_offsets_are_reset_to_where_there_are_records(line: Line) -> None:
    assert line.plan("--topic", line.topic, "--to-offset", "7") == {0: 7, 1: 7}
    assert line.plan("--topic", line.topic, "--to-offset", "700") == {0: RECORDS, 1: RECORDS}
    assert line.plan("--topic", f"{line.topic}:1", "--to-latest") == {1: RECORDS}
    assert line.plan("--topic", f"{line.topic}:0,1", "--to-earliest") == {0: 0, 1: 0}
    assert line.plan("--shift-by", "3") == {0: 5}
    assert line.plan("--shift-by=-1") == {0: 1}
    assert line.plan("--shift-by=-100") == {0: 0}
    assert line.plan("--shift-by", "100") == {0: RECORDS}


@pytest.mark.chronik_topic(partitions=2)
def test_offsets_are_reset_to_a_time(line: Line) -> None:
    day_ms = 24 * 3600 * 1000
    now_ms = time.time_ns() // 1_000_000
    for age_days in (3, 2, 1):
        record = json.dumps({"value": f"{age_days} days old", "partition": 1, "timestamp": now_ms - age_days * day_ms})
        line("produce", f"{line.topic}-old", "--json", stdin=record.replace('"partition": 1', '"partition": 0'))
    topic = f"{line.topic}-old"
    assert line.plan("--topic", topic, "--by-duration", "P4D") == {0: 0}
    assert line.plan("--topic", topic, "--by-duration", "P2DT12H") == {0: 1}
    assert line.plan("--topic", topic, "--by-duration", "PT36H30M1.5S") == {0: 2}
    assert line.plan("--topic", topic, "--by-duration", "PT1S") == {0: 3}, "no record is that new"
    assert line.plan("--topic", topic, "--to-datetime", str(now_ms - 2 * day_ms)) == {0: 1}
    moment = datetime.fromtimestamp((now_ms - 2 * day_ms + 1000) / 1000, tz=UTC)
    assert line.plan("--topic", topic, "--to-datetime", moment.isoformat()) == {0: 2}
    assert line.plan("--topic", topic, "--to-datetime", "1969-12-31T00:00:00") == {0: 0}


@pytest.mark.chronik_topic(partitions=2)
def test_listed_groups_have_their_members_and_lag(line: Line) -> None:
    (group,) = [each for each in line("groups", "list", "--json").json if each["group"] == line.group]
    assert group == {"group": line.group, "state": "Empty", "protocol_type": "", "members": 0, "lag": RECORDS - 2}
    lines = line("groups", "list").lines
    assert lines[0].split() == ["GROUP", "STATE", "PROTOCOL", "TYPE", "MEMBERS", "LAG"]
    assert [each.split()[-2:] for each in lines if line.group in each] == [["0", str(RECORDS - 2)]]


def test_listed_group_of_a_deleted_topic_has_no_lag(line: Line) -> None:
    line("topics", "create", "for-a-moment", "--partitions", "1")
    line("produce", "for-a-moment", stdin="a\nb\n")
    line("consume", "for-a-moment", "--group", "reader-of-a-moment")
    line("topics", "delete", "for-a-moment")
    found = [each for each in line("groups", "list", "--json").json if each["group"] == "reader-of-a-moment"]
    assert [each["lag"] for each in found] in ([], [None])


@pytest.mark.parametrize("duration", ["", "P", "PT", "1D", "P1", "P-1D", "PT5", "P1H", "P1DT"])
def test_duration_that_is_not_iso_8601_is_rejected(duration: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected an ISO 8601 duration"):
        parse_duration_ms(duration)


def test_durations_are_those_of_iso_8601() -> None:
    assert parse_duration_ms("P1W") == 7 * 24 * 3600 * 1000
    assert parse_duration_ms("P1DT2H3M4.5S") == 1000 * (24 * 3600 + 2 * 3600 + 3 * 60) + 4500


@pytest.mark.chronik_topic(partitions=2)
def test_a_reset_that_makes_no_sense_is_refused(line: Line) -> None:
    for options, why in (
        (("--topic", f"{line.topic}:1", "--shift-by", "1"), "nothing is committed"),
        (("--topic", f"{line.topic}:7", "--to-latest"), "no partition 7"),
        (("--topic", f"{line.topic}:x", "--to-latest"), "expected TOPIC"),
        (("--topic", f"{line.topic}:0,{'1' * 5000}", "--to-latest"), "expected TOPIC"),
    ):
        refused = line.reset(*options)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert why in refused.err
    assert line.reset().code == 2
    assert line.reset("--to-latest", "--to-earliest").code == 2
    assert line.committed() == {0: 2}


@pytest.mark.chronik_topic(partitions=2)
def test_a_new_group_is_given_offsets(line: Line) -> None:
    line.group = f"new-{line.group}"
    assert "committed nothing" in line.reset("--to-latest").err
    assert line.plan("--topic", line.topic, "--to-offset", "4", "--execute") == {0: 4, 1: 4}
    assert line.committed() == {0: 4, 1: 4}


@pytest.mark.chronik_topic(partitions=2)
def test_a_group_with_members_is_neither_reset_nor_deleted(line: Line, chronik_broker: Broker) -> None:
    settings = {"group.id": line.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": chronik_broker.bootstrap, **settings})
    try:
        consumer.subscribe([line.topic])
        assert consumer.poll(30) is not None
        refused = line.reset("--to-latest", "--execute")
        assert (refused.code, "only while it has no members" in refused.err) == (1, True)
        refused = line("groups", "delete", line.group)
        assert (refused.code, "NON_EMPTY_GROUP" in refused.err) == (1, True)
    finally:
        consumer.close()
    assert line.committed() == {0: 2}
    assert line("groups", "delete", line.group).lines == [f"deleted {line.group}"]
    gone = line("groups", "delete", line.group)
    assert (gone.code, "GROUP_ID_NOT_FOUND" in gone.err) == (1, True)
