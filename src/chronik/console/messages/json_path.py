"""Selection of values from JSON by paths such as `$.customer.id` or `$.items[*].sku`.

Only the values on the path are decoded. Large documents are scanned by Python code, between whose steps other threads
run; the fast decoder would block them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import msgspec

from chronik.limits import KIB, MIB

FAST_BYTES_MAX: Final = 256 * KIB
"""Maximum size of a document that is decoded in one step, which blocks other threads for a few milliseconds."""
WINDOW_CHARACTERS: Final = 64 * KIB
"""Size of the parts in which large documents are searched."""
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
            return [_decode_large(each) for each in self._select_large(document.decode())]
        except (msgspec.DecodeError, ValueError, RecursionError, InvalidOperation):
            return []

    def _select_raw(self, document: msgspec.Raw) -> list[msgspec.Raw]:
        """Return the encoded values at the path. Values beside the path are skipped without decoding them."""
        found = [document]
        for step, model in zip(self._steps, self._types, strict=True):
            found = [each for raw in found for each in _take_step(raw, step, model)][:SELECTED_MAX]
        return found

    def _select_large(self, text: str) -> list[_Span]:
        found: list[_Span] = []
        end = _walk(text, _skip_space(text, 0), self._steps, 0, found)
        if _skip_space(text, end) != len(text):
            raise ValueError("the document continues after its value")
        return found


_UNUSUAL: Final = re.compile(r'[\\"\x00-\x1f]|^$')
"""Names that fields of structs cannot have."""


def _build_type(step: Step) -> Any:
    if not isinstance(step, str):
        return list[msgspec.Raw]
    if _UNUSUAL.search(step):
        return dict[str, msgspec.Raw]  # slower: all fields are read
    return msgspec.defstruct("Step", [("field", msgspec.Raw, msgspec.Raw())], rename={"field": step})


def _take_step(raw: msgspec.Raw, step: Step, model: Any) -> list[msgspec.Raw]:
    try:
        value = msgspec.json.decode(raw, type=model)
    except msgspec.ValidationError:
        return []
    if isinstance(value, dict):
        return [value[step]] if step in value else []
    if isinstance(step, str):
        return [value.field] if bytes(value.field) else []
    if step is None:
        return list(value)
    return [value[step]] if -len(value) <= step < len(value) else []


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


# Large documents


class _Span(NamedTuple):
    """The range of a value in a document."""

    text: str
    start: int
    end: int


_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STRUCTURE: Final = re.compile(r'["{}\[\]]')
_SCALAR: Final = re.compile(r'[^\s,:"{}\[\]]+')


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    assert match is not None
    return match.end()


def _find_string_end(text: str, start: int) -> int:
    """Return the position after the string that starts with the quotation mark at `start`."""
    end = start
    while (end := text.find('"', end + 1)) >= 0:
        first = end
        while text[first - 1] == "\\":
            first -= 1
        if (end - first) % 2 == 0:
            return end + 1
    raise ValueError("a string is not closed")


def _find_value_end(text: str, start: int) -> int:
    """Return the position after the value at `start`. It is searched in windows, so that other threads run."""
    first = text[start : start + 1]
    if first == '"':
        return _find_string_end(text, start)
    if first not in ("{", "["):
        match = _SCALAR.match(text, start)
        if match is None:
            raise ValueError("expected a value")
        return match.end()
    depth, position = 0, start
    while position < len(text):
        match = _STRUCTURE.search(text, position, position + WINDOW_CHARACTERS)
        if match is None:
            position += WINDOW_CHARACTERS
        elif match[0] == '"':
            position = _find_string_end(text, match.start())
        else:
            position = match.end()
            depth += 1 if match[0] in "{[" else -1
            if depth == 0:
                return position
    raise ValueError("an object or array is not closed")


def _walk(text: str, start: int, steps: tuple[Step, ...], index: int, found: list[_Span]) -> int:
    """Add the values at the path from step `index` on, in the value at `start`, and return the position after it.

    Each character of the document is visited once, because values beside the path are skipped.
    """
    first = text[start : start + 1]
    if index == len(steps) or first != ("{" if isinstance(steps[index], str) else "["):
        end = _find_value_end(text, start)
        if index == len(steps) and len(found) < SELECTED_MAX:
            found.append(_Span(text, start, end))
        return end
    step = steps[index]
    if isinstance(step, str):
        return _walk_object(text, start, steps, index, found)
    last: deque[list[_Span]] = deque(maxlen=max(1, -step) if step is not None else 1)
    position, count = _skip_space(text, start + 1), 0
    while text[position : position + 1] != "]":
        if step is None or step == count:
            position = _walk(text, position, steps, index + 1, found)
        elif step < 0:
            last.append([])
            position = _walk(text, position, steps, index + 1, last[-1])
        else:
            position = _find_value_end(text, position)
        position = _skip_separator(text, position, "]")
        count += 1
    if step is not None and -count <= step < 0:
        found.extend(last[0])
    return position + 1


def _walk_object(text: str, start: int, steps: tuple[Step, ...], index: int, found: list[_Span]) -> int:
    """Add the values at the path in the object at `start`. Of several fields with the name, the last one counts."""
    known = len(found)
    position = _skip_space(text, start + 1)
    while text[position : position + 1] != "}":
        end = _find_value_end(text, position)
        name = msgspec.json.decode(text[position:end], type=str)
        position = _skip_space(text, end)
        if text[position : position + 1] != ":":
            raise ValueError("expected a colon")
        position = _skip_space(text, position + 1)
        if name == steps[index]:
            del found[known:]
            position = _walk(text, position, steps, index + 1, found)
        else:
            position = _find_value_end(text, position)
        position = _skip_separator(text, position, "}")
    return position + 1


def _skip_separator(text: str, start: int, closing: str) -> int:
    """Return the position of the next element, or of the closing bracket."""
    position = _skip_space(text, start)
    if text[position : position + 1] == ",":
        return _skip_space(text, position + 1)
    if text[position : position + 1] != closing:
        raise ValueError(f"expected a comma or {closing}")
    return position


def _decode_large(span: _Span) -> JsonValue:
    first = span.text[span.start]
    if first == "{":
        return {}
    if first == "[":
        elements: list[_Span] = []
        _walk(span.text, span.start, (None,), 0, elements)
        return [_decode_large(each) for each in elements if each.text[each.start] not in "{["]
    return _decode(msgspec.Raw(span.text[span.start : span.end].encode()))
