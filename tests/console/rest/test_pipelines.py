"""Pipelines: columns are reported by drivers, and sample rows are read by drivers for authorized clients."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chronik.console.rest.errors import RestError
from chronik.console.rest.operations import pipelines
from chronik.console.rest.operations.pipelines import (
    DRIVER_REQUESTS_MAX,
    DRIVER_REQUESTS_PER_ACCOUNT_MAX,
    require_running_driver,
)
from chronik.pipeline.journal import sample_responder
from chronik.pipeline.journal.journal_client import encode_schema
from chronik.pipeline.journal.sample_responder import SampleResponder
from chronik.pipeline_journal import (
    DRIVER_SILENT_SECONDS,
    ColumnInfo,
    PipelineJournalState,
    PipelineTopicKey,
    ReceivedProgress,
    TableColumns,
    TopicProgress,
)
from chronik.principals import Principal
from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient, ApiResponse
from tests.console.rest.conftest import log_in_as
from tests.console.rest.operation_cases import PIPELINE, TOPIC, prepare_pipeline

PATH = f"/pipelines/{PIPELINE}/sample?topic={TOPIC}"
SECONDS_MAX = 60.0


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the poll interval: the last poll must end before the thread stops."""
    monkeypatch.setattr(sample_responder, "POLL_WAIT_SECONDS", 0.2)


def write(root: ApiClient, key: str, value: str) -> None:
    message = {"key": key, "value": value}
    assert root.post("/topics/__chronik_pipelines/messages", message).status == 201


def progress(root: ApiClient, state: str = "waiting", **more: Any) -> None:
    write(root, f"progress/{PIPELINE}/{TOPIC}", json.dumps({"state": state, "table": "/lake/orders", **more}))


def allow_read(root: ApiClient, user: str, *topics: str) -> None:
    acls = [{"resource": "topic", "name": name, "principal": f"User:{user}", "operation": "read"} for name in topics]
    assert root.post("/acls", {"acls": acls}).status == 201


@contextmanager
def running_driver(node: AuthorizingNode, *responses: bytes) -> Iterator[list[tuple[str, int]]]:
    """Run a driver's thread that returns these responses in order."""
    requests, left = list[tuple[str, int]](), iter(responses)
    node.allow(AclOperation.WRITE, AclResourceType.TOPIC, "__chronik_pipelines")

    def sample(topic: str, rows: int) -> bytes:
        requests.append((topic, rows))
        return next(left)

    answerer = SampleResponder(node.bootstrap, PIPELINE, sample)
    try:
        yield requests
    finally:
        answerer.close()
        answerer._thread.join(SECONDS_MAX)


def test_columns_are_shown_after_driver_reports_them(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_pipeline(node, root)
    (before,) = root.get(f"/pipelines/{PIPELINE}").json["topics"]
    assert (before["columns"], before["columns_left_out"]) == (None, 0)
    columns = (ColumnInfo("_offset", "bigint"), ColumnInfo("euros", "double"))
    record = encode_schema(PipelineTopicKey(PIPELINE, TOPIC), TableColumns(columns, 7))
    assert record.key is not None
    assert record.value is not None
    write(root, record.key.decode(), record.value.decode())
    (after,) = root.get(f"/pipelines/{PIPELINE}").json["topics"]
    assert after["columns"] == [{"name": "_offset", "type": "bigint"}, {"name": "euros", "type": "double"}]
    assert after["columns_left_out"] == 7
    assert {name: after[name] for name in before if not name.startswith("columns")} == {
        name: before[name] for name in before if not name.startswith("columns")
    }, "progress is unchanged"


def test_sample_rows_come_from_driver(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_pipeline(node, root)
    message = (
        b'{"columns":["_offset","euros"],"rows":[["5",null],["6","0.5"]],"columns_left_out":1,"of a later version":0}'
    )
    with running_driver(node, message, b'{"columns":["_offset"]}') as requests:
        answer = root.get(PATH)
        assert (answer.status, answer.json) == (
            200,
            {"columns": ["_offset", "euros"], "columns_left_out": 1, "rows": [["5", None], ["6", "0.5"]]},
        )
        assert root.get(f"{PATH}&rows=3").json["rows"] == []
        assert requests == [(TOPIC, 20), (TOPIC, 3)]
        for rows in (0, 21):
            assert root.get(f"{PATH}&rows={rows}").status == 422


def test_sample_rows_require_read_permission(
    node: AuthorizingNode, root: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    prepare_pipeline(node, root)
    alice = log_in_as(node, "alice")
    allow_read(root, "alice", "__chronik_pipelines")
    assert alice.get(f"/pipelines/{PIPELINE}").status == 200
    with running_driver(node, b'{"columns":["_value"],"rows":[["value-secret"]]}') as requests:
        with caplog.at_level(logging.INFO, "chronik.audit"):
            rejected = alice.get(PATH)
        assert (rejected.status, rejected.json["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        assert b"value-secret" not in rejected.body
        lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "chronik.audit"]
        assert [(each["event"], each["principal"], each["api"], each["operation"], each["name"]) for each in lines] == [
            ("refused", "User:alice", "SampleTable", "Read", TOPIC)
        ]
        assert requests == [], "the driver gets no requests of unauthorized clients"
        allow_read(root, "alice", TOPIC)
        assert alice.get(PATH).json["rows"] == [["value-secret"]]


def error_of(answer: ApiResponse, status: int) -> str:
    assert answer.status == status, answer
    return str(answer.json["error"])


def test_driver_errors_are_returned(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_pipeline(node, root)
    with running_driver(
        node, b'{"error":"there is no table at /lake/orders"}', b"no json", b'{"rows":[5]}', b"x" * 70_000
    ):
        expected = "the driver cannot read the table: there is no table at /lake/orders"
        assert error_of(root.get(PATH), 503) == expected
        for _ in range(2):
            assert error_of(root.get(PATH), 503).startswith("the driver's response is not valid: ")
        assert "70,000 bytes" in error_of(root.get(PATH), 413)


def test_missing_driver_times_out(node: AuthorizingNode, root: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_pipeline(node, root)
    monkeypatch.setattr(pipelines, "SAMPLE_SECONDS_MAX", 0.1)
    message = error_of(root.get(PATH), 504)
    assert "within 0.1 s" in message


def test_stopped_or_unknown_driver_is_rejected_immediately(node: AuthorizingNode, root: ApiClient) -> None:
    prepare_pipeline(node, root)
    progress(root, "stopped")
    message = error_of(root.get(PATH), 503)
    assert message == f"the driver of {PIPELINE} has stopped: sample rows are available while it runs"
    message = error_of(root.get(f"/pipelines/{PIPELINE}/sample?topic=another"), 404)
    assert message == f"no driver has reported topic 'another' of pipeline '{PIPELINE}'"
    assert root.get(f"/pipelines/{PIPELINE}/sample").status == 422


def test_silent_driver_is_rejected() -> None:
    journal, key = PipelineJournalState(), PipelineTopicKey("p", "orders")
    journal.progress[key] = ReceivedProgress(TopicProgress("waiting"), 1_000_000)
    require_running_driver(journal, key, 1000 + DRIVER_SILENT_SECONDS)
    with pytest.raises(RestError, match="the driver of p last reported 31 s ago"):
        require_running_driver(journal, key, 1001 + DRIVER_SILENT_SECONDS)


def test_driver_requests_are_limited_in_total(
    node: AuthorizingNode, root: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_pipeline(node, root)
    driver_requests = Counter(
        {Principal("User", name): DRIVER_REQUESTS_PER_ACCOUNT_MAX for name in ("alice", "mallory")}
    )
    assert driver_requests.total() == DRIVER_REQUESTS_MAX
    monkeypatch.setattr(pipelines, "_driver_requests", driver_requests)
    assert error_of(root.get(PATH), 429) == "too many requests for sample rows: try again later"
    driver_requests[Principal("User", "alice")] -= 1
    with running_driver(node, b"{}"):
        assert root.get(PATH).status == 200
        assert root.get(PATH.replace(TOPIC, "another")).status == 404
    assert driver_requests.total() == DRIVER_REQUESTS_MAX - 1, "released"


def test_driver_requests_are_limited_per_account(
    node: AuthorizingNode, root: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_pipeline(node, root)
    monkeypatch.setattr(pipelines, "_driver_requests", Counter({"User:root": DRIVER_REQUESTS_PER_ACCOUNT_MAX}))
    assert root.get(PATH).status == 429
    monkeypatch.setattr(
        pipelines, "_driver_requests", Counter({Principal("User", "mallory"): DRIVER_REQUESTS_PER_ACCOUNT_MAX})
    )
    with running_driver(node, b"{}"):
        assert root.get(PATH).status == 200
