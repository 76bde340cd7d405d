from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from chronik.testing import Broker

from .command_line import COMMAND, TIMEOUT_S, CommandResult, environment, run_chronik

pytestmark = pytest.mark.slow

Cli = Callable[..., CommandResult]


@pytest.fixture
def cli(chronik_broker: Broker) -> Cli:
    def run(*arguments: str, stdin: str | bytes = "") -> CommandResult:
        return run_chronik(*arguments, bootstrap=chronik_broker.bootstrap, stdin=stdin)

    return run


def keys_and_values(chronik_broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in chronik_broker.records(topic)]


# metadata


@pytest.mark.chronik_topic(partitions=3)
def test_metadata_shows_brokers_topics_leaders_and_replicas(cli: Cli, chronik_topic: str) -> None:
    lines = cli("metadata").lines
    assert lines[0] == "Brokers: 1"
    assert [line.split() for line in lines if chronik_topic in line] == [[chronik_topic, "0-2", "1", "1", "1"]]


def test_metadata_json_is_sorted_response_of_broker(cli: Cli, chronik_broker: Broker, chronik_topic: str) -> None:
    response = cli("metadata", "--json")
    assert [(each["node_id"], each["port"]) for each in response.json["brokers"]] == [(1, chronik_broker.port)]
    topics = response.json["topics"]
    (topic,) = [each for each in topics if each["name"] == chronik_topic]
    assert topic["partitions"][0]["isr_nodes"] == [1]
    assert len(topic["topic_id"]) == 22
    assert [each["name"] for each in topics] == sorted(each["name"] for each in topics)
    assert "cluster_authorized_operations" not in response.json, "only fields of the negotiated version"
    assert cli("metadata", "--json").out == response.out


# topics


def test_topics_are_created_listed_altered_and_deleted(cli: Cli, chronik_topic: str) -> None:
    name = f"{chronik_topic}-life"
    assert cli("topics", "create", name, "-p", "2", "-c", "retention.ms=60000").lines == [f"created {name}"]
    assert [line.split() for line in cli("topics", "list").lines if name in line] == [[name, "2", "1"]]

    (described,) = cli("topics", "describe", name, "--json").json
    assert described["configs"] == {"retention.ms": "60000"}
    assert [(each["partition"], each["leader"], each["isr"]) for each in described["partitions"]] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]

    changes = ("-p", "4", "-c", "max.message.bytes=1000", "--delete-config", "retention.ms")
    assert cli("topics", "alter", name, *changes).lines == [f"altered {name}"]
    (altered,) = cli("topics", "describe", name, "--json").json
    assert altered["configs"] == {"max.message.bytes": "1000"}
    assert len(altered["partitions"]) == 4
    assert altered["id"] == described["id"]

    assert cli("topics", "delete", name).lines == [f"deleted {name}"]
    assert name not in [each["name"] for each in cli("topics", "list", "--all", "--json").json]


def test_topics_describe_prints_offsets(cli: Cli, chronik_topic: str) -> None:
    cli("produce", chronik_topic, stdin="a\nb\n")
    lines = cli("topics", "describe", chronik_topic).lines
    assert lines[0] == f"Topic: {chronik_topic}"
    assert lines[-2].split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"]
    assert lines[-1].split()[-2:] == ["0", "2"]


def test_if_exists_flags_make_create_and_delete_idempotent(cli: Cli, chronik_topic: str) -> None:
    assert cli("topics", "create", chronik_topic, "--if-not-exists").lines == [f"{chronik_topic} already exists"]
    assert cli("topics", "delete", "no-such-topic", "--if-exists").lines == ["no-such-topic does not exist"]


@pytest.mark.parametrize(("response", "is_deleted"), [("y", True), ("n", False), ("", False)])
def test_topics_delete_on_terminal_needs_confirmation(
    cli: Cli, chronik_broker: Broker, chronik_topic: str, response: str, is_deleted: bool
) -> None:
    words = [*COMMAND, "topics", "delete", chronik_topic]
    main, terminal = os.openpty()
    with open(main, "r+b", buffering=0) as keyboard:
        process = subprocess.Popen(
            words, stdin=terminal, stdout=subprocess.PIPE, text=True, env=environment(chronik_broker.bootstrap)
        )
        os.close(terminal)
        keyboard.write(f"{response}\n".encode())
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert out.startswith(f"This deletes 1 topic with all records: {chronik_topic}\n")
    assert process.returncode == (0 if is_deleted else 1)
    names = [each["name"] for each in cli("topics", "list", "--json").json]
    assert (chronik_topic not in names) == is_deleted


def test_topics_delete_with_yes_needs_no_confirmation(chronik_broker: Broker, chronik_topic: str) -> None:
    main, terminal = os.openpty()
    words = [*COMMAND, "topics", "delete", chronik_topic, "--yes"]
    done = subprocess.run(
        words,
        stdin=terminal,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(chronik_broker.bootstrap),
    )
    os.close(main)
    os.close(terminal)
    assert (done.returncode, done.stdout) == (0, f"deleted {chronik_topic}\n")


# produce and consume


def test_produced_lines_are_consumed_as_lines(cli: Cli, chronik_topic: str) -> None:
    produced = cli("produce", chronik_topic, stdin="first\n\nthird, with 日本語\r\nlast, without an end")
    assert (produced.code, produced.out) == (0, "")
    assert produced.err == f"4 records written to {chronik_topic}\n"
    assert cli("consume", chronik_topic).lines == ["first", "", "third, with 日本語", "last, without an end"]


@pytest.mark.chronik_topic(partitions=3)
def test_produce_sets_key_codec_header_and_partition(cli: Cli, chronik_broker: Broker, chronik_topic: str) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        options = ("-k", ":", "-z", codec, "-H", "source=test", "-p", "2", "-q")
        assert cli("produce", chronik_topic, *options, stdin=f"{codec}:a:b\n").err == ""
    records = chronik_broker.records(chronik_topic)
    assert [(record.partition, record.key, record.value) for record in records] == [
        (2, b"gzip", b"a:b"),
        (2, b"snappy", b"a:b"),
        (2, b"lz4", b"a:b"),
        (2, b"zstd", b"a:b"),
    ]
    assert {record.headers for record in records} == {(("source", b"test"),)}
    assert cli("consume", chronik_topic, "-k", "=", "-n", "1").lines == ["gzip=a:b"]


def test_consume_json_output_is_valid_produce_input(cli: Cli, chronik_broker: Broker, chronik_topic: str) -> None:
    copy = f"{chronik_topic}-copy"
    lines = [
        {"key": "k", "value": "v", "headers": [{"name": "h", "value": None}], "timestamp": 5},
        {"key": None, "value_base64": "/w=="},
        {"value": None, "key": "tombstone"},
    ]
    assert cli("produce", chronik_topic, "--json", stdin="\n".join(map(json.dumps, lines))).code == 0
    printed = cli("consume", chronik_topic, "--json")
    assert [json.loads(line)["offset"] for line in printed.lines] == [0, 1, 2]
    cli("topics", "create", copy)
    assert cli("produce", copy, "--json", stdin=printed.out).code == 0
    assert keys_and_values(chronik_broker, copy) == [(b"k", b"v"), (None, b"\xff"), (b"tombstone", None)]
    assert [record[3:] for record in chronik_broker.records(copy)] == [
        record[3:] for record in chronik_broker.records(chronik_topic)
    ]


def test_produce_writes_large_input_completely_and_in_order(cli: Cli, chronik_topic: str) -> None:
    lines = [f"{number:0100d}" for number in range(20_000)]
    assert cli("produce", chronik_topic, "-z", "lz4", stdin="\n".join(lines)).code == 0
    assert cli("consume", chronik_topic).lines == lines


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-o", "7"), "789"),
        (("-o", "-2"), "89"),
        (("-o", "-99"), "0123456789"),
        (("-o", "earliest", "-n", "3"), "012"),
        (("-o", "latest"), ""),
        (("--from-beginning", "-n", "1"), "0"),
        (("--from", "start", "-n", "2"), "01"),
        (("--from", "end"), ""),
        (("--from", "-3"), "789"),
        (("--from=-1",), "9"),
        (("--offset", "8"), "89"),
        (("-p", "0", "-o", "9"), "9"),
    ],
)
def test_consume_reads_selected_offset_range(
    cli: Cli, chronik_topic: str, options: tuple[str, ...], expected: str
) -> None:
    cli("produce", chronik_topic, stdin="\n".join("0123456789"))
    assert "".join(cli("consume", chronik_topic, *options).lines) == expected


def test_consume_with_group_resumes_at_committed_offset(cli: Cli, chronik_topic: str) -> None:
    group = f"group-of-{chronik_topic}"
    cli("produce", chronik_topic, stdin="a\nb\nc\n")
    assert cli("consume", chronik_topic, "-g", group, "-n", "2").lines == ["a", "b"]
    assert cli("consume", chronik_topic, "-g", group).lines == ["c"]
    assert cli("consume", chronik_topic, "-g", group).lines == []
    assert cli("consume", chronik_topic, "-g", group, "--from-beginning", "-n", "1").lines == ["a"]

    assert group in [each["group"] for each in cli("groups", "list", "--json").json]
    (described,) = cli("groups", "describe", group, "--json").json
    assert (described["state"], described["members"]) == ("Empty", [])
    (offset,) = described["offsets"]
    assert (offset["topic"], offset["committed"], offset["end_offset"], offset["lag"]) == (chronik_topic, 1, 3, 2)
    assert cli("groups", "describe", group).lines[0] == f"Group: {group}"


@pytest.mark.chronik_topic(partitions=3)
def test_groups_describe_prints_members_with_partitions(cli: Cli, chronik_broker: Broker, chronik_topic: str) -> None:
    group = f"group-of-{chronik_topic}"
    cli("produce", chronik_topic, "-p", "1", stdin="a\nb\n")
    settings = {"group.id": group, "client.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": chronik_broker.bootstrap, **settings})
    try:
        consumer.subscribe([chronik_topic])
        message = consumer.poll(30)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        (described,) = cli("groups", "describe", group, "--json").json
        assert described["state"] == "Stable"
        (member,) = described["members"]
        assert (member["client_id"], member["partitions"]) == ("reader", 3)
        shown = [(each["partition"], each["committed"], each["lag"], each["member"]) for each in described["offsets"]]
        assert shown == [
            (0, None, None, member["member"]),
            (1, 1, 1, member["member"]),
            (2, None, None, member["member"]),
        ]
        assert "Members: 1" in cli("groups", "describe", group).lines
        non_member = cli("consume", chronik_topic, "-g", group)
        assert (non_member.code, non_member.err.count("\n")) == (1, 1)
        assert "UNKNOWN_MEMBER_ID" in non_member.err
    finally:
        consumer.close()


def test_consume_follow_prints_new_records_up_to_limit(chronik_broker: Broker, chronik_topic: str, cli: Cli) -> None:
    cli("produce", chronik_topic, stdin="old\n")
    follower = subprocess.Popen(
        [*COMMAND, "consume", chronik_topic, "--follow", "--from-beginning", "-n", "3"],
        stdout=subprocess.PIPE,
        env=environment(chronik_broker.bootstrap),
    )
    with follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"old\n"
        cli("produce", chronik_topic, stdin="new\nnewer\nnewest\n")
        assert follower.stdout.read() == b"new\nnewer\n"
        assert follower.wait(TIMEOUT_S) == 0


def test_produce_sends_typed_line_before_end_of_input(chronik_broker: Broker, chronik_topic: str) -> None:
    environ = environment(chronik_broker.bootstrap)
    typing = subprocess.Popen([*COMMAND, "produce", chronik_topic], stdin=subprocess.PIPE, env=environ, stderr=-3)
    follow = [*COMMAND, "consume", chronik_topic, "--follow", "--from-beginning", "-n", "1"]
    with typing:
        assert typing.stdin is not None
        typing.stdin.write(b"typed\n")
        typing.stdin.flush()
        assert subprocess.run(follow, capture_output=True, timeout=TIMEOUT_S, env=environ).stdout == b"typed\n"
        assert typing.poll() is None
