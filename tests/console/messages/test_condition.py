from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from chronik.console.messages import json_path
from chronik.console.messages.condition import DEPTH_MAX, ConditionError, parse_condition


class Fields:
    """The fields of a record with a JSON value."""

    def __init__(self, value: bytes | None, key: bytes | None = b"ada", **headers: str) -> None:
        self._documents = {"value": value, "key": key}
        self._headers = headers
        self.numbers = {"partition": 3, "offset": 17, "timestamp": 1_700_000_000_000}

    def document(self, field: str) -> bytes | None:
        return self._documents[field]

    def text(self, field: str) -> str | None:
        data = self._documents[field]
        return None if data is None else data.decode()

    def header(self, name: str) -> list[str | None]:
        return [self._headers[name]] if name in self._headers else []


VALUE: dict[str, Any] = {
    "id": 7,
    "big": 12345678901234567890123,
    "price": 9.5,
    "paid": True,
    "note": None,
    "name": "Grünwald",
    "when": "2026-05-31T12:00:00Z",
    "text id": "7",
    "tags": ["a", "b", 3],
    "customer": {"id": 7, "a.b": 1, "and": "x"},
    "items": [{"sku": "S-1", "n": 1}, {"sku": "S-2", "n": 20}],
    "empty": "",
}

MET = [
    "$.id = 7",
    "$.id == 7.0",
    "$.id=7",
    "$.id != 8",
    "$.id <> 8",
    "$.id > 6.5",
    "$.id >= 7 and $.id <= 7",
    "$.id < 1e1",
    "$.big = 12345678901234567890123",
    "not $.big = 12345678901234567890124",
    "$.price = 9.5",
    "$.paid = true",
    "$.note = null",
    "$.note exists",
    '$.name = "Grünwald"',
    "$.name = 'Grünwald'",
    r'$.name = "Gr\u00fcnwald"',
    "$.name contains GRÜN",
    "$.name = Grünwald",
    '$.when > "2026-05-31" and $.when < "2026-06-01"',
    '$["text id"] = 7',
    '$["text id"] < 8',
    '$["text id"] = "7"',
    "$.tags contains b",
    "$.tags contains 3",
    "$.tags[0] = a",
    "$.tags[-1] = 3",
    "$.tags[*] = a",
    "$.customer.id = 7",
    '$.customer["a.b"] = 1',
    "$.customer.and = x",
    "$.customer exists",
    "value.customer.id = 7",
    "$.items[*].n > 10",
    "$.items[*].sku contains s-2",
    '$.empty = ""',
    "$.id = 8 or $.id = 7",
    "$.id = 8 OR ($.id = 7 AND NOT $.id = 9)",
    "not (not $.id = 7)",
    "key = ada",
    "key contains D",
    "header.source = web",
    'header["source"] exists',
    "partition = 3 and offset >= 17 and timestamp > 1600000000000",
    "value contains customer",
    "$ exists",
]
NOT_MET = [
    "$.id = 8",
    '$.id = "7"',
    "$.id != 7",
    "$.missing = 1",
    "$.missing != 1",
    "$.missing exists",
    "$.paid = 1",
    '$.paid = "true"',
    "$.name > 3",
    "$.note < 1",
    "$.items[5].n = 1",
    "$.items.n = 1",
    "$.id[0] = 7",
    "$.tags contains c",
    "$.customer = 1",
    "key = Ada",
    "header.other exists",
    "header.source != web",
    "$.id = 7 and $.id = 8",
]


@pytest.fixture(params=["fast", "slow"])
def fields(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fields:
    """The fields of a record whose value is decoded by either decoder."""
    if request.param == "slow":
        monkeypatch.setattr(json_path, "FAST_BYTES_MAX", 0)
    return Fields(json.dumps(VALUE).encode(), source="web")


@pytest.mark.parametrize("text", MET)
def test_condition_is_met(fields: Fields, text: str) -> None:
    assert parse_condition(text).is_met(fields)


@pytest.mark.parametrize("text", NOT_MET)
def test_condition_is_not_met(fields: Fields, text: str) -> None:
    assert not parse_condition(text).is_met(fields)


@pytest.mark.parametrize("value", [None, b"", b"text", b"\xff", b'{"id": 7', b'{"id": 7} x', b"[" * 100_000, b"07"])
def test_path_in_a_value_that_is_not_json_selects_nothing(value: bytes | None) -> None:
    assert not parse_condition("$.id = 7 or $.id exists or $ = 7 or $[0] exists").is_met(Fields(value))


def test_null_key_equals_null() -> None:
    assert parse_condition("key = null").is_met(Fields(b"1", key=None))
    assert not parse_condition("key = null").is_met(Fields(b"1", key=b""))


@pytest.mark.parametrize(
    "value",
    [b"", b"text", b'{"id": 7', b'{"id": 7} x', b'{"id" 7}', b'{"id": }', b'{"id"}', b'{"id": "7', b"[" * 1000, b"07"],
)
def test_malformed_large_document_is_not_matched(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_path, "FAST_BYTES_MAX", 0)
    assert not parse_condition("$.id = 7 or $.id exists or $ = 7 or $[0] exists").is_met(Fields(value))


def test_decoders_of_small_and_large_documents_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(5)
    paths: list[list[json_path.Step]] = [
        [],
        ["a"],
        ["a", "b"],
        [0],
        [-1],
        [None],
        ["a", None],
        ["a", 1, "b"],
        [None, "a"],
        ['q"\\ü'],
    ]
    for _ in range(400):
        document = json.dumps(_build_value(pick, 4), ensure_ascii=pick.random() < 0.5, indent=pick.choice([None, 1]))
        for steps in paths:
            path = json_path.JsonPath(steps)
            with monkeypatch.context() as patched:
                expected = path.find(document.encode())
                patched.setattr(json_path, "FAST_BYTES_MAX", 0)
                patched.setattr(json_path, "WINDOW_CHARACTERS", 2)
                assert path.find(document.encode()) == expected, (document, steps)


def _build_value(pick: random.Random, depth: int) -> Any:
    kind = pick.randrange(8 if depth else 6)
    if kind == 6:
        names = pick.choices(["a", "b", 'q"\\ü', "[", "}", ""], k=pick.randrange(4))
        return {name: _build_value(pick, depth - 1) for name in names}
    if kind == 7:
        return [_build_value(pick, depth - 1) for _ in range(pick.randrange(4))]
    return pick.choice([1, -2.5, 1e30, True, None, "", 'x"\\', "\\\\", "{[", "ü😀", 12345678901234567890])


def test_large_documents_are_examined() -> None:
    document = json.dumps({"filler": "x" * json_path.FAST_BYTES_MAX, "id": 7}).encode()
    assert parse_condition("$.id = 7").is_met(Fields(document))
    assert not parse_condition("$.id = 8").is_met(Fields(document))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected"),
        ("$", "expected =, !="),
        ("$.id", "at the end"),
        ("$.id = ", "a value"),
        ("$.id ~ 7", "expected =, !="),
        ("id = 7", "expected $.field"),
        ("$.id = 7 8", "expected and, or"),
        ("($.id = 7", "expected )"),
        ("$. = 7", "the name of a field"),
        ("$.a[x] = 7", "in brackets"),
        ("$.a[1 = 7", "expected ]"),
        ("header = 7", "the name of a header"),
        ('$.id = "7', "unexpected"),
        ("not", "expected"),
        ("(" * (DEPTH_MAX + 1) + "$.a = 1", "nested"),
        ("not " * (DEPTH_MAX + 1) + "$.a = 1", "nested"),
    ],
)
def test_malformed_condition_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(ConditionError, match=re.escape(expected)):
        parse_condition(text)
