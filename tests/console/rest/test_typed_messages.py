"""Typed keys and values in the message browser: decoding, permissions on subjects, limits, search and tail."""

from __future__ import annotations

import http.client
import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from chronik.console.rest.operations import messages, typed_messages
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import log_in_as

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "shop.Item"}],
}
PAYLOAD = b"\x0e\x08S-17"
DECODED = {"id": 7, "item": {"sku": "S-17"}}


@pytest.fixture
def alice(node: AuthorizingNode) -> ApiClient:
    return log_in_as(node, "alice")


@pytest.fixture
def topic(root: ApiClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    assert root.post("/topics", {"name": name, "partitions": 1}).status == 200
    allow(root, "topic", name)
    yield name
    acls = root.get("/acls?principal=User:alice&limit=500").json["items"]
    assert root.post("/acls/delete", {"acls": acls}).status == 200


def allow(root: ApiClient, resource: str, name: str) -> None:
    """Let Alice read a topic or subject."""
    acl = {"resource": resource, "name": name, "principal": "User:alice", "operation": "read"}
    assert root.post("/acls", {"acls": [acl]}).status == 201


def register(root: ApiClient, subject: str, schema: Any, *references: tuple[str, str]) -> int:
    """Register a schema with references of names to first versions of subjects, and return its id."""
    body = {
        "schema": json.dumps(schema),
        "references": [{"name": name, "subject": each, "version": 1} for name, each in references],
    }
    response = root.send("POST", f"//registry/subjects/{subject}/versions", body)
    assert response.status == 200, response
    return int(json.loads(response.body)["id"])


def register_order(root: ApiClient, topic: str) -> int:
    register(root, f"{topic}-item", ITEM)
    return register(root, f"{topic}-value", ORDER, ("shop.Item", f"{topic}-item"))


def frame(schema_id: int, payload: bytes = PAYLOAD) -> bytes:
    return struct.pack(">BI", 0, schema_id) + payload


def produce(root: ApiClient, topic: str, value: bytes, key: bytes | None = None) -> None:
    body = {"value": b64encode(value).decode(), "value_format": "base64"}
    if key is not None:
        body |= {"key": b64encode(key).decode(), "key_format": "base64"}
    assert root.post(f"/topics/{topic}/messages", body).status == 201


def read(client: ApiClient, topic: str, query: str = "from=start") -> list[dict[str, Any]]:
    response = client.get(f"/topics/{topic}/messages?{query}")
    assert response.status == 200, response
    return response.json["items"]  # type: ignore[no-any-return]


def search(client: ApiClient, topic: str, text: str) -> list[int]:
    """Return the offsets of the messages that match."""
    events = list(client.events(f"/topics/{topic}/search?text={text}"))
    assert events[-1][1]["why"] == "end"
    return [data["offset"] for name, data in events if name == "match"]


def test_typed_key_and_value_are_decoded_with_their_schemas(root: ApiClient, topic: str) -> None:
    value_id, key_id = register_order(root, topic), register(root, f"{topic}-key", "string")
    produce(root, topic, frame(value_id), frame(key_id, b"\x06ada"))
    (message,) = read(root, topic)
    assert message["key"]["text"] == '"ada"'
    assert (message["key"]["schema"]["subject"], message["key"]["schema"]["id"]) == (f"{topic}-key", key_id)
    assert message["value"]["kind"] == "json"
    assert json.loads(message["value"]["text"]) == DECODED
    assert message["value"]["schema"] == {
        "id": value_id,
        "guid": None,
        "format": "avro",
        "subject": f"{topic}-value",
        "version": 1,
        "problem": None,
    }


def test_messages_without_schema_are_unchanged(root: ApiClient, topic: str) -> None:
    produce(root, topic, b'{"a": 1}', b"ada")
    produce(root, topic, b"\0\0")
    json_value, bytes_value = read(root, topic)
    assert json_value["key"] == {"kind": "text", "text": "ada", "truncated": False, "schema": None}
    assert json_value["value"] == {"kind": "json", "text": '{"a": 1}', "truncated": False, "schema": None}
    assert bytes_value["value"] == {"kind": "bytes", "text": "AAA=", "truncated": False, "schema": None}


def test_value_is_raw_if_another_format_is_requested(root: ApiClient, topic: str) -> None:
    value = frame(register_order(root, topic))
    produce(root, topic, value)
    (message,) = read(root, topic, "from=start&format=bytes")
    assert message["value"]["text"] == b64encode(value).decode()
    assert message["value"]["schema"] is None


def test_value_is_decoded_only_with_permission_on_its_subject(root: ApiClient, alice: ApiClient, topic: str) -> None:
    value = frame(register_order(root, topic))
    produce(root, topic, value)

    def read_as_alice() -> dict[str, Any]:
        (message,) = read(alice, topic)
        return message["value"]  # type: ignore[no-any-return]

    hidden = read_as_alice()
    assert hidden["text"] == b64encode(value).decode()
    assert hidden["schema"]["problem"].endswith("does not exist, or you may not read its subjects")
    assert (hidden["schema"]["format"], hidden["schema"]["subject"]) == (None, None)
    assert search(alice, topic, '"id":7') == []
    allow(root, "subject", f"{topic}-value")
    assert f"{topic}-item, which you may not read" in read_as_alice()["schema"]["problem"]
    allow(root, "subject", f"{topic}-item")
    assert json.loads(read_as_alice()["text"]) == DECODED
    assert search(alice, topic, '"id":7') == [0]


def test_version_of_own_subject_is_preferred(root: ApiClient, topic: str) -> None:
    schema = {"type": "record", "name": f"Only_{topic}", "fields": []}
    register(root, f"a-{topic}", schema)
    schema_id = register(root, f"{topic}-value", schema)
    assert register(root, f"z-{topic}", schema) == schema_id
    produce(root, topic, frame(schema_id, b""))
    (message,) = read(root, topic)
    assert message["value"]["schema"]["subject"] == f"{topic}-value"


def test_undecodable_value_is_shown_with_reason(root: ApiClient, topic: str) -> None:
    schema_id = register_order(root, topic)
    payloads = (PAYLOAD[:-1], PAYLOAD + b"!", b"")
    for payload in (*payloads, PAYLOAD):
        produce(root, topic, frame(schema_id, payload))
    *undecoded, right = (message["value"] for message in read(root, topic))
    for payload, shown in zip(payloads, undecoded, strict=True):
        assert shown["text"] in (b64encode(frame(schema_id, payload)).decode(), frame(schema_id, payload).decode())
        assert shown["schema"]["problem"]
        assert shown["schema"]["subject"] == f"{topic}-value"
    assert json.loads(right["text"]) == DECODED


def test_value_with_unknown_schema_is_shown_with_reason(root: ApiClient, topic: str) -> None:
    produce(root, topic, frame(2_000_000_000))
    (message,) = read(root, topic)
    assert message["value"]["schema"]["problem"].startswith("schema 2000000000 does not exist")


def test_value_with_soft_deleted_schema_is_decoded(root: ApiClient, topic: str) -> None:
    schema_id = register_order(root, topic)
    produce(root, topic, frame(schema_id))
    assert root.send("DELETE", f"//registry/subjects/{topic}-value").status == 200
    (message,) = read(root, topic)
    assert json.loads(message["value"]["text"]) == DECODED


def test_schema_in_header_is_used(root: ApiClient, topic: str) -> None:
    schema_id = register_order(root, topic)
    header = {"name": "__value_schema_id", "value": frame(schema_id, b"").decode()}
    body = {"value": PAYLOAD.decode(), "headers": [header]}
    assert root.post(f"/topics/{topic}/messages", body).status == 201
    (message,) = read(root, topic)
    assert json.loads(message["value"]["text"]) == DECODED


def test_limits_leave_values_undecoded(root: ApiClient, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [register_order(root, topic), register(root, f"{topic}-key", "string")]
    produce(root, topic, frame(ids[0]), frame(ids[1], b"\x06ada"))

    def find_problems() -> list[str | None]:
        (message,) = read(root, topic)
        return [message[field]["schema"]["problem"] for field in ("key", "value")]

    monkeypatch.setattr(typed_messages, "VALUE_BYTES_MAX", len(PAYLOAD))
    assert find_problems() == [None, None]
    monkeypatch.setattr(typed_messages, "VALUE_BYTES_MAX", len(PAYLOAD) - 1)
    assert find_problems() == [None, "the value has more than 0 KiB"]
    monkeypatch.undo()
    monkeypatch.setattr(typed_messages, "SCHEMAS_MAX", 1)
    assert find_problems() == [None, "the messages name more than 1 schemas: read fewer messages"]
    monkeypatch.undo()
    monkeypatch.setattr(messages, "DECODING_CPU_SECONDS_MAX", 0.0)
    assert find_problems() == ["decoding took too long: read fewer messages"] * 2


def test_long_decoded_value_is_truncated(root: ApiClient, topic: str) -> None:
    schema_id = register(root, f"{topic}-value", "string")
    produce(root, topic, frame(schema_id, b"\x90\x4e" + b"x" * 5000))
    assert read(root, topic)[0]["value"]["truncated"] is False
    (message,) = read(root, topic, "from=start&limit=500")
    assert message["value"]["truncated"] is True
    assert message["value"]["text"].startswith('"xxx')
    assert message["value"]["schema"]["format"] == "avro"


def test_value_that_is_much_larger_as_json_is_not_decoded(root: ApiClient, topic: str) -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A" * 1000]}
    schema_id = register(root, f"{topic}-value", {"type": "array", "items": enum})
    produce(root, topic, frame(schema_id, b"\x80\xf1\x04" + bytes(40_000 + 1)))
    (message,) = read(root, topic)
    assert message["value"]["kind"] != "json"
    assert message["value"]["schema"]["problem"] == "the value has more than 16 MiB as JSON"


def test_search_finds_text_in_decoded_json(root: ApiClient, topic: str) -> None:
    schema_id = register_order(root, topic)
    produce(root, topic, b'{"id":7}')
    for number in (7, 8):
        produce(root, topic, frame(schema_id, struct.pack(">B", 2 * number) + PAYLOAD[1:]), b"ada")
    assert search(root, topic, '"id":7') == [0, 1]
    assert search(root, topic, "S-17") == [1, 2], "also in the raw bytes"
    assert search(root, topic, "S-18") == []


def read_event(response: http.client.HTTPResponse) -> dict[str, Any]:
    """Return the message of the next event of a tail."""
    while (line := response.readline()) != b"event: message\n":
        assert line.strip() in (b"", b": still here"), line
    return json.loads(response.readline().removeprefix(b"data: "))  # type: ignore[no-any-return]


def test_tail_decodes_messages(root: ApiClient, topic: str) -> None:
    schema_id = register_order(root, topic)
    connection, response = root.open_response("GET", f"/topics/{topic}/tail", None, {})
    with closing(connection), closing(response):
        assert response.status == 200
        produce(root, topic, frame(schema_id))
        message = read_event(response)
    assert json.loads(message["value"]["text"]) == DECODED


def test_tail_stops_decoding_when_permission_is_revoked(
    root: ApiClient, alice: ApiClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_messages, "REMEMBERED_SECONDS", 0.0)
    schema_id = register(root, f"{topic}-value", "string")
    allow(root, "subject", f"{topic}-value")
    connection, response = alice.open_response("GET", f"/topics/{topic}/tail", None, {})
    with closing(connection), closing(response):
        assert response.status == 200
        produce(root, topic, frame(schema_id, b"\x06tea"))
        assert read_event(response)["value"]["text"] == '"tea"'
        (acl,) = root.get(f"/acls?resource=subject&name={topic}-value").json["items"]
        assert root.post("/acls/delete", {"acls": [acl]}).status == 200
        produce(root, topic, frame(schema_id, b"\x06tea"))
        assert read_event(response)["value"]["schema"]["problem"].endswith("or you may not read its subjects")
