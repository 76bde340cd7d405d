"""Downloads of single keys, values and headers."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.test_typed_messages import DECODED, frame, register_order

TOPIC = "valued"
LARGE = json.dumps({"text": "ü" * 100_000}).encode()


@pytest.fixture(scope="module", autouse=True)
def topic(node: AuthorizingNode) -> None:
    root = ApiClient(node.http)
    root.log_in("root", "correct horse")
    assert root.post("/topics", {"name": TOPIC, "partitions": 1}).status == 200
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        records = [OutgoingRecord(b"<script>", b"\0k", (("a", b"1"), ("a", None), ("b", b"\xff")))]
        Producer(client).send(TOPIC, [*records, OutgoingRecord(None, None), OutgoingRecord(LARGE)])


def test_bytes_of_fields_are_downloaded_unchanged(root: ApiClient) -> None:
    for query, expected in (("", b"<script>"), ("?field=key", b"\0k"), ("?field=header&header=2", b"\xff")):
        response = root.get(f"/topics/{TOPIC}/messages/0/0/value{query}")
        assert (response.status, response.body) == (200, expected)
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"].startswith(f'attachment; filename="{TOPIC}-0-0-')
        assert response.headers["content-security-policy"].startswith("sandbox")
        assert response.headers["x-content-type-options"] == "nosniff"


def test_large_value_is_truncated_in_the_list_and_downloaded_whole(root: ApiClient) -> None:
    (message,) = root.get(f"/topics/{TOPIC}/messages?from=2").json["items"]
    assert message["value"]["truncated"]
    assert len(message["value"]["text"]) < 10_000
    assert root.get(f"/topics/{TOPIC}/messages/0/2/value").body == LARGE


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("0/0/value?field=header&header=3", "the message has 3 headers"),
        ("0/0/value?field=header&header=1", "the header is null"),
        ("0/1/value", "the value is null"),
        ("0/1/value?field=key", "the key is null"),
        ("0/3/value", f"message 3 of {TOPIC}-0 does not exist: the partition has offsets 0 to 2"),
        ("1/0/value", "has no partition 1"),
    ],
)
def test_missing_value_is_not_found(root: ApiClient, path: str, error: str) -> None:
    response = root.get(f"/topics/{TOPIC}/messages/{path}")
    assert response.status == 404
    assert error in response.json["error"]


def test_typed_value_is_downloaded_as_bytes_and_as_json(root: ApiClient) -> None:
    assert root.post("/topics", {"name": "typed-value", "partitions": 1}).status == 200
    data = frame(register_order(root, "typed-value"))
    body = {"value": b64encode(data).decode(), "value_format": "base64"}
    assert root.post("/topics/typed-value/messages", body).status == 201
    assert root.get("/topics/typed-value/messages/0/0/value").body == data
    response = root.get("/topics/typed-value/messages/0/0/value?decoded=true")
    assert response.json == DECODED
    response = root.get(f"/topics/{TOPIC}/messages/0/0/value?decoded=true")
    assert (response.status, response.json["error"]) == (400, "the value cannot be decoded: it names no schema")
