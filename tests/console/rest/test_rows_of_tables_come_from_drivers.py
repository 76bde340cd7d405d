"""Columns of tables are shown as drivers tell them; rows come from a driver itself, for who may read the topic."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chronik.console.rest.doing import pipelines
from chronik.console.rest.doing.pipelines import (
    ASKED_AT_ONCE_MAX,
    ASKED_PER_ACCOUNT_MAX,
    SILENT_SECONDS,
    Journal,
    Place,
    Progress,
    check_driver,
)
from chronik.console.rest.refusals import Refusal
from chronik.pipeline.journal import answering
from chronik.pipeline.journal.answering import SampleAnswerer
from chronik.pipeline.journal.journal import Place as JournalPlace
from chronik.pipeline.journal.journal import Schema, schema_record
from chronik.pipeline.journal.reporting import Column
from chronik.principals import Principal
from chronik.protocol.permissions import Operation, ResourceType
from tests.api.guarded import GuardedNode
from tests.console.rest.asking import Answer, Browser
from tests.console.rest.cases import PIPELINE, TOPIC, pipeline
from tests.console.rest.conftest import logged_in

PATH = f"/pipelines/{PIPELINE}/sample?topic={TOPIC}"
SECONDS_MAX = 60.0


@pytest.fixture(autouse=True)
def driver_asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last question has to be answered before its thread ends."""
    monkeypatch.setattr(answering, "WAIT_SECONDS", 0.2)


def write(root: Browser, key: str, value: str) -> None:
    message = {"key": key, "value": value}
    assert root.post("/topics/__chronik_pipelines/messages", message).status == 201


def progress(root: Browser, state: str = "waiting", **more: Any) -> None:
    write(root, f"progress/{PIPELINE}/{TOPIC}", json.dumps({"state": state, "table": "/lake/orders", **more}))


def may_read(root: Browser, user: str, *topics: str) -> None:
    acls = [{"resource": "topic", "name": name, "principal": f"User:{user}", "operation": "read"} for name in topics]
    assert root.post("/acls", {"acls": acls}).status == 201


@contextmanager
def answered(node: GuardedNode, *answers: bytes) -> Iterator[list[tuple[str, int]]]:
    """By a real driver's thread, with these answers one after the other."""
    asked, left = list[tuple[str, int]](), iter(answers)
    node.allow(Operation.WRITE, ResourceType.TOPIC, "__chronik_pipelines")

    def sample(topic: str, rows: int) -> bytes:
        asked.append((topic, rows))
        return next(left)

    answerer = SampleAnswerer(node.bootstrap, PIPELINE, sample)
    try:
        yield asked
    finally:
        answerer.close()
        answerer._thread.join(SECONDS_MAX)


def test_columns_are_shown_when_a_driver_has_told_them(node: GuardedNode, root: Browser) -> None:
    pipeline(node, root)
    (before,) = root.get(f"/pipelines/{PIPELINE}").json["topics"]
    assert (before["columns"], before["columns_left_out"]) == (None, 0)
    columns = (Column("_offset", "bigint"), Column("euros", "double"))
    record = schema_record(JournalPlace(PIPELINE, TOPIC), Schema(columns, 7))
    assert record.key is not None
    assert record.value is not None
    write(root, record.key.decode(), record.value.decode())
    (after,) = root.get(f"/pipelines/{PIPELINE}").json["topics"]
    assert after["columns"] == [{"name": "_offset", "type": "bigint"}, {"name": "euros", "type": "double"}]
    assert after["columns_left_out"] == 7
    assert {name: after[name] for name in before if not name.startswith("columns")} == {
        name: before[name] for name in before if not name.startswith("columns")
    }, "progress is what it was"


def test_rows_come_from_the_driver(node: GuardedNode, root: Browser) -> None:
    pipeline(node, root)
    told = (
        b'{"columns":["_offset","euros"],"rows":[["5",null],["6","0.5"]],"columns_left_out":1,"of a later version":0}'
    )
    with answered(node, told, b'{"columns":["_offset"]}') as asked:
        answer = root.get(PATH)
        assert (answer.status, answer.json) == (
            200,
            {"columns": ["_offset", "euros"], "columns_left_out": 1, "rows": [["5", None], ["6", "0.5"]]},
        )
        assert root.get(f"{PATH}&rows=3").json["rows"] == []
        assert asked == [(TOPIC, 20), (TOPIC, 3)]
        for rows in (0, 21):
            assert root.get(f"{PATH}&rows={rows}").status == 422


def test_rows_are_for_those_who_may_read_the_topic(
    node: GuardedNode, root: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline(node, root)
    alice = logged_in(node, "alice")
    may_read(root, "alice", "__chronik_pipelines")
    assert alice.get(f"/pipelines/{PIPELINE}").status == 200
    with answered(node, b'{"columns":["_value"],"rows":[["value-secret"]]}') as asked:
        with caplog.at_level(logging.INFO, "chronik.audit"):
            refused = alice.get(PATH)
        assert (refused.status, refused.json["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        assert b"value-secret" not in refused.body
        lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "chronik.audit"]
        assert [(each["event"], each["principal"], each["api"], each["operation"], each["name"]) for each in lines] == [
            ("refused", "User:alice", "SampleTable", "Read", TOPIC)
        ]
        assert asked == [], "no driver is asked for those who may not see it"
        may_read(root, "alice", TOPIC)
        assert alice.get(PATH).json["rows"] == [["value-secret"]]


def error_of(answer: Answer, status: int) -> str:
    assert answer.status == status, answer
    return str(answer.json["error"])


def test_what_the_driver_says_is_told(node: GuardedNode, root: Browser) -> None:
    pipeline(node, root)
    with answered(node, b'{"error":"there is no table at /lake/orders"}', b"no json", b'{"rows":[5]}', b"x" * 70_000):
        expected = "the driver has no rows to show: there is no table at /lake/orders"
        assert error_of(root.get(PATH), 503) == expected
        for _ in range(2):
            assert error_of(root.get(PATH), 503).startswith("the driver's answer cannot be read: ")
        assert "has answered 70,000 bytes, which is too much" in error_of(root.get(PATH), 413)


def test_a_driver_that_does_not_come_is_waited_for_briefly(
    node: GuardedNode, root: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(node, root)
    monkeypatch.setattr(pipelines, "SAMPLE_SECONDS_MAX", 0.1)
    told = error_of(root.get(PATH), 504)
    assert f"the driver of pipeline {PIPELINE} did not come for the question within 0.1 s" in told


def test_nobody_waits_for_a_driver_that_has_stopped_or_never_was(node: GuardedNode, root: Browser) -> None:
    pipeline(node, root)
    progress(root, "stopped")
    told = error_of(root.get(PATH), 503)
    assert told == f"the driver of {PIPELINE} has stopped: rows are shown while it runs"
    told = error_of(root.get(f"/pipelines/{PIPELINE}/sample?topic=another"), 404)
    assert told == f"no driver has told of topic 'another' in pipeline '{PIPELINE}'"
    assert root.get(f"/pipelines/{PIPELINE}/sample").status == 422


def test_a_driver_that_was_not_heard_for_long_is_not_asked() -> None:
    journal, place = Journal(), Place("p", "orders")
    journal.progress[place] = Progress("waiting"), 1_000_000
    check_driver(journal, place, 1000 + SILENT_SECONDS)
    with pytest.raises(Refusal, match="the driver of p was last heard 31 s ago: rows are shown while it runs"):
        check_driver(journal, place, 1001 + SILENT_SECONDS)


def test_questions_leave_threads_to_others(node: GuardedNode, root: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline(node, root)
    full = Counter({Principal("User", name): ASKED_PER_ACCOUNT_MAX for name in ("alice", "mallory")})
    assert full.total() == ASKED_AT_ONCE_MAX
    monkeypatch.setattr(pipelines, "_asking", full)
    assert error_of(root.get(PATH), 429) == "too many ask drivers for rows: try again"
    full[Principal("User", "alice")] -= 1
    with answered(node, b"{}"):
        assert root.get(PATH).status == 200
        assert root.get(PATH.replace(TOPIC, "another")).status == 404
    assert full.total() == ASKED_AT_ONCE_MAX - 1, "given back"


def test_account_that_asks_drivers_for_rows_leaves_requests_to_others(
    node: GuardedNode, root: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(node, root)
    monkeypatch.setattr(pipelines, "_asking", Counter({"User:root": ASKED_PER_ACCOUNT_MAX}))
    assert root.get(PATH).status == 429
    monkeypatch.setattr(pipelines, "_asking", Counter({Principal("User", "mallory"): ASKED_PER_ACCOUNT_MAX}))
    with answered(node, b"{}"):
        assert root.get(PATH).status == 200
