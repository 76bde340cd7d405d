"""Escaping of names and records that contain terminal escape sequences."""

from __future__ import annotations

import os
import subprocess

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.testing.broker import Broker
from tests.api.request_builders import batch, produce, produce_request
from tests.cli.command_line import COMMAND, TIMEOUT_S, environment, run_chronik
from tests.raw import RawClient

pytestmark = pytest.mark.slow

GROUP = "evil\x1b[31m\n2026 forged"
FORGED = "x\n2026-11-16 00:00:00,000 CRITICAL chronik.node: all is lost"


def commit_offset(broker: Broker, topic: str, group: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    committed = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    with RawClient(broker.bootstrap) as client:
        response = client.request(OffsetCommitRequest(group_id=group, topics=[committed]), 8, OffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def run_in_terminal(broker: Broker, *arguments: str) -> bytes:
    ours, terminal = os.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdout=terminal, env=environment(broker.bootstrap))
    os.close(terminal)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:
        pass  # Linux raises EIO when the other end is closed
    os.close(ours)
    assert process.wait(TIMEOUT_S) == 0
    return written


def test_group_name_is_escaped_in_tables(chronik_broker: Broker, chronik_topic: str) -> None:
    commit_offset(chronik_broker, chronik_topic, GROUP)
    for arguments in (("groups", "list"), ("groups", "describe", GROUP)):
        result = run_chronik(*arguments, bootstrap=chronik_broker.bootstrap)
        assert result.code == 0
        assert "\x1b" not in result.out
        assert r"evil\x1b[31m\n2026 forged" in result.out
        assert not any(line.startswith("2026") for line in result.lines)


def test_json_output_contains_unmodified_name(chronik_broker: Broker, chronik_topic: str) -> None:
    commit_offset(chronik_broker, chronik_topic, GROUP)
    result = run_chronik("groups", "list", "--json", bootstrap=chronik_broker.bootstrap)
    assert "\x1b" not in result.out
    assert GROUP in str(result.json) or any(GROUP in map(str, each.values()) for each in result.json)


def test_consume_escapes_records_on_terminal_but_not_in_pipe(chronik_broker: Broker, chronik_topic: str) -> None:
    with RawClient(chronik_broker.bootstrap) as client:
        produce(client, chronik_topic, batch(b"\x1b]0;owned\x07 \xff"))
    shown = run_in_terminal(chronik_broker, "consume", chronik_topic)
    assert b"\x1b" not in shown
    assert rb"\x1b]0;owned\x07 \xff" in shown
    piped = subprocess.run(
        [*COMMAND, "consume", chronik_topic], capture_output=True, env=environment(chronik_broker.bootstrap), check=True
    )
    assert piped.stdout == b"\x1b]0;owned\x07 \xff\n"


def test_topic_name_cannot_forge_log_line(chronik_broker: Broker) -> None:
    with RawClient(chronik_broker.bootstrap) as client:
        client.send(produce_request(FORGED, batch(b"v"), acks=0), 9)
        assert client.wait_for_close(), "as in Kafka: with acks=0 there is no response"
    lines = chronik_broker.log.splitlines()
    assert any(r"x\n2026-11-16 00:00:00,000 CRITICAL" in line for line in lines)
    assert not any(line.startswith("2026-11-16 00:00:00,000 CRITICAL") for line in lines)
