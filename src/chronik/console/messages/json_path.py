"""Selection of values from JSON by paths such as `$.customer.id` or `$.items[*].sku`.

Only the values on the path are decoded. Large documents are decoded by Python code, between whose steps other threads
run; the fast decoder would block them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from json import decoder as json_decoder
from json import scanner as json_scanner
from typing import Any, Final

import msgspec

from chronik.limits import KIB, MIB

FAST_BYTES_MAX: Final = 256 * KIB
"""Maximum size of a document that is decoded in one step, which blocks other threads for a few milliseconds."""
DOCUMENT_BYTES_MAX: Final = 16 * MIB
SELECTED_MAX: Final = 100_000
"""Maximum number of values that a path selects from a document. Further values are ignored."""
DIGITS_MAX: Final = 400
"""Maximum length of a number that is compared exactly."""

Step = str | int | None
"""A step of a path: the name of a field, the index of an element, or None for all elements."""

JsonValue = str | Decimal | bool | list[Any] | dict[str, Any] | None


class JsonPath:
    """A path to values in a JSON document."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = tuple(steps)
        self._types = tuple(_build_type(each) for each in self._steps)

    def find(self, document: bytes) -> list[JsonValue]:
        """Return the values at the path, an empty list if the document is not valid JSON."""
        try:
            if len(document) <= FAST_BYTES_MAX:
                return [_decode(each) for each in self._select_raw(msgspec.Raw(document))]
            if len(document) > DOCUMENT_BYTES_MAX:
                return []
            return list(self._select(_SlowDecoder().decode(document.decode())))
        except (msgspec.DecodeError, ValueError, RecursionError, InvalidOperation):
            return []

    def _select_raw(self, document: msgspec.Raw) -> list[msgspec.Raw]:
        """Return the encoded values at the path. Values beside the path are skipped without decoding them."""
        found = [document]
        for step, model in zip(self._steps, self._types, strict=True):
            found = [each for raw in found for each in _take_step(raw, step, model)][:SELECTED_MAX]
        return found

    def _select(self, document: JsonValue) -> list[JsonValue]:
        found = [document]
        for step in self._steps:
            found = [each for value in found for each in _take_decoded_step(value, step)][:SELECTED_MAX]
        return found


def _build_type(step: Step) -> Any:
    if not isinstance(step, str):
        return list[msgspec.Raw]
    return msgspec.defstruct("Step", [("field", msgspec.Raw, msgspec.Raw())], rename={"field": step})


def _take_step(raw: msgspec.Raw, step: Step, model: Any) -> list[msgspec.Raw]:
    try:
        value = msgspec.json.decode(raw, type=model)
    except msgspec.ValidationError:
        return []
    if isinstance(step, str):
        return [value.field] if bytes(value.field) else []
    if step is None:
        return list(value)
    return [value[step]] if -len(value) <= step < len(value) else []


def _take_decoded_step(value: JsonValue, step: Step) -> Iterator[JsonValue]:
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield value[step]
    elif isinstance(value, list):
        if step is None:
            yield from value
        elif -len(value) <= step < len(value):
            yield value[step]


def _decode(raw: msgspec.Raw) -> JsonValue:
    text = bytes(raw).strip()
    if text[:1] in b"-0123456789":
        msgspec.json.decode(text)  # Decimal accepts more than JSON
        return parse_number(text.decode())
    if text[:1] == b"{":
        msgspec.json.decode(text, type=msgspec.Raw)
        return {}  # conditions only ask whether it exists
    return _convert_numbers(msgspec.json.decode(text))


def _convert_numbers(value: Any) -> JsonValue:
    if isinstance(value, list):
        return [_convert_numbers(each) for each in value if not isinstance(each, (list, dict))]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return parse_number(str(value))
    return value  # type: ignore[no-any-return]


def parse_number(text: str) -> Decimal:
    """Return a number exactly, unless it has hundreds of digits."""
    return Decimal(text) if len(text) <= DIGITS_MAX else Decimal(float(text))


class _SlowDecoder(json.JSONDecoder):
    """A JSON decoder without C code."""

    def __init__(self) -> None:
        super().__init__(parse_int=parse_number, parse_float=parse_number)
        self.parse_object = json_decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_string = _scan_string
        self.scan_once = json_scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _scan_string(text: str, start: int, strict: bool = True) -> tuple[str, int]:
    """Return the string that starts after a quotation mark, and the position after it.

    Long strings without escapes are found by a fast search. The pattern of Python's decoder would block other threads.
    """
    end = text.find('"', start)
    if end >= 0 and text.find("\\", start, end) < 0:
        return text[start:end], end + 1
    return json_decoder.py_scanstring(text, start, strict)  # type: ignore[attr-defined,no-any-return]
