"""Download of messages as JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from base64 import b64encode

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.console.messages.parquet_process import PROCESSES_MAX, ParquetProcess
from chronik.console.rest.operations.csv_cells import format_csv_cell
from chronik.console.rest.operations.exports import COLUMNS
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.test_typed_messages import DECODED, frame, register_order

TOPIC = "exported"
BASE_MS = int(time.time() * 1000) - 3_600_000
FORMULA = '=HYPERLINK("http://evil.example","x")'
MESSAGES = [
    OutgoingRecord(b'{ "a" : 1.50,\n "b": "\\u00fc" }', b"ada", (("h", b"1"), ("h", None)), BASE_MS),
    OutgoingRecord(FORMULA.encode(), b"-5", (), BASE_MS + 1000),
    OutgoingRecord(None, b"", (), BASE_MS + 2000),
    OutgoingRecord(b"\xff\0", None, (), BASE_MS + 3000),
    OutgoingRecord('"quoted", text\r\nü'.encode(), b"{not json", (), BASE_MS + 4000),
]
MANY = 3_000


@pytest.fixture(scope="module", autouse=True)
def topics(node: AuthorizingNode) -> None:
    root = ApiClient(node.http)
    root.log_in("root", "correct horse")
    for name, partitions in ((TOPIC, 1), ("exported-many", 3)):
        assert root.post("/topics", {"name": name, "partitions": partitions}).status == 200
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        Producer(client).send(TOPIC, MESSAGES)
        for partition in range(3):
            records = [OutgoingRecord(b"value %d" % each, partition=partition) for each in range(MANY // 3)]
            Producer(client).send("exported-many", records)


def test_json_lines_embed_json_and_distinguish_formats(root: ApiClient) -> None:
    response = root.get(f"/topics/{TOPIC}/export")
    assert response.status == 200
    assert response.headers["content-type"] == "application/jsonl"
    assert response.headers["content-disposition"] == f'attachment; filename="{TOPIC}.jsonl"'
    lines = response.body.splitlines()
    assert b'"value":{"a":1.50,"b":"\\u00fc"}' in lines[0], "numbers keep their digits"
    rows = [json.loads(line) for line in lines]
    assert [(row["key"], row["key_format"], row["value"], row["value_format"]) for row in rows] == [
        ("ada", "text", {"a": 1.5, "b": "ü"}, "json"),
        ("-5", "text", FORMULA, "text"),
        ("", "text", None, None),
        (None, None, b64encode(b"\xff\0").decode(), "base64"),
        ("{not json", "text", '"quoted", text\r\nü', "text"),
    ]
    assert rows[0]["headers"] == [{"name": "h", "value": "1"}, {"name": "h", "value": None}]
    assert [row["timestamp_ms"] for row in rows] == [BASE_MS + 1000 * each for each in range(5)]
    assert rows[0]["timestamp"].endswith("Z")


def test_csv_cells_are_quoted_and_formulas_disabled(root: ApiClient) -> None:
    response = root.get(f"/topics/{TOPIC}/export?format=csv")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.body.decode(), newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert [row["value"] for row in rows] == [
        '{"a":1.50,"b":"\\u00fc"}',
        f"'{FORMULA}",
        "",
        b64encode(b"\xff\0").decode(),
        '"quoted", text\r\nü',
    ]
    assert [row["key"] for row in rows] == ["ada", "-5", "", "", "{not json"]
    lines = response.body.split(b"\r\n")
    assert lines[3].endswith(b'Z","","text",,,'), "empty text is quoted, null is not"


@pytest.mark.parametrize(
    "start", ["=1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-", "--1", "'=1"]
)
def test_cells_that_could_be_formulas_start_with_an_apostrophe(start: str) -> None:
    assert format_csv_cell(start) == f'"\'{start}"'


@pytest.mark.parametrize("text", ["", "a=1", "-5", "-5.25e3", " =1", "'a=1", "1-1"])
def test_other_cells_are_unchanged(text: str) -> None:
    assert format_csv_cell(text) == f'"{text}"'


def test_parquet_file_has_all_rows(root: ApiClient) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    response = root.get(f"/topics/{TOPIC}/export?format=parquet")
    assert response.headers["content-type"] == "application/vnd.apache.parquet"
    rows = parquet.read_table(io.BytesIO(response.body)).to_pylist()
    assert [row["value"] for row in rows][1:3] == [FORMULA, None]
    assert rows[0]["headers"] == [{"name": "h", "value": "1"}, {"name": "h", "value": None}]
    assert [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows] == [BASE_MS + 1000 * i for i in range(5)]


def test_parquet_files_beyond_the_limit_are_rejected(root: ApiClient) -> None:
    pytest.importorskip("pyarrow")
    writing = [ParquetProcess() for _ in range(PROCESSES_MAX)]
    response = root.get(f"/topics/{TOPIC}/export?format=parquet")
    assert response.status == 429
    assert "try again later" in response.json["error"]
    for each in writing:
        each.close()
    assert root.get(f"/topics/{TOPIC}/export?format=parquet").status == 200


def test_parquet_without_pyarrow_is_a_clear_error(root: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    response = root.get(f"/topics/{TOPIC}/export?format=parquet")
    assert response.status == 501
    assert "pip install '.[spark]'" in response.json["error"]


def test_export_respects_filters_order_and_limit(root: ApiClient) -> None:
    def offsets(query: str) -> list[int]:
        body = root.get(f"/topics/{TOPIC}/export?{query}").body
        return [json.loads(line)["offset"] for line in body.splitlines()]

    assert offsets("order=newest&limit=2") == [4, 3]
    assert offsets("where=%24.a%20%3D%201.5") == [0]
    assert offsets("from=1&until=3") == [1, 2]
    assert root.get(f"/topics/{TOPIC}/export?where=%24").status == 400
    assert root.get("/topics/nothing/export").status == 404


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_large_export_contains_each_message_once(root: ApiClient, format: str) -> None:
    body = root.get(f"/topics/exported-many/export?format={format}&limit=1000000").body.decode()
    if format == "csv":
        places = [(row["partition"], row["offset"]) for row in csv.DictReader(io.StringIO(body))]
    else:
        places = [(row["partition"], row["offset"]) for row in map(json.loads, body.splitlines())]
    assert len(places) == len(set(places)) == MANY


def test_typed_values_are_exported_as_json(root: ApiClient) -> None:
    assert root.post("/topics", {"name": "exported-typed", "partitions": 1}).status == 200
    body = {"value": b64encode(frame(register_order(root, "exported-typed"))).decode(), "value_format": "base64"}
    assert root.post("/topics/exported-typed/messages", body).status == 201
    row = root.get("/topics/exported-typed/export").body
    assert json.loads(row)["value"] == DECODED
