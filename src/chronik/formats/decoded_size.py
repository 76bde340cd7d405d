"""Limits on the size of decoded values, which may be much larger than their payloads.

A byte of a payload may stand for an enum symbol of 1,000 characters, for a record whose 5,000 fields are absent, or for
a default value. A value that is too large is an error of its own, so that its size depends on nothing but its bytes and
schema. Many values that are large together are decoded in smaller parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from chronik.formats.codec import JsonForm, UndecodableValueError

VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a decoded value in an Arrow array, unless its payload is large."""

VALUE_BYTES_PER_BYTE_MAX: Final = 64
"""Maximum size of a decoded value per byte of its payload, if that is more than VALUE_BYTES_MAX."""

COLUMN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of the values that are decoded at the same time, unless a single one is larger. Usually, 65,536 values
take less."""

Result = TypeVar("Result")


def find_size_max(payload_bytes: int) -> int:
    """Return the maximum size of the decoded value of a payload."""
    return max(VALUE_BYTES_MAX, VALUE_BYTES_PER_BYTE_MAX * payload_bytes)


class ColumnTooLargeError(Exception):
    """Several payloads that must be decoded in smaller parts: their values are too large to decode them together."""


class ValueBudget:
    """The size that the value of one payload may still have."""

    __slots__ = ("_left", "_maximum")

    def __init__(self) -> None:
        self._left = self._maximum = VALUE_BYTES_MAX

    def reset(self, payload_bytes: int) -> None:
        """Start with a payload."""
        self._left = self._maximum = find_size_max(payload_bytes)

    @property
    def left(self) -> int:
        return self._left

    @property
    def used(self) -> int:
        return self._maximum - self._left

    def check_json(self, form: JsonForm) -> None:
        """Check the size of the JSON of a form before it is encoded. It is not counted.

        Raises:
            UndecodableValueError: The value is too large.
        """
        if _exceeds(form, self._left):
            self.take(self._left + 1)

    def take(self, size: int) -> None:
        """Count bytes.

        Raises:
            UndecodableValueError: The value is too large.
        """
        self._left -= size
        if self._left < 0:
            raise UndecodableValueError(f"the decoded value has more than {self._maximum >> 20} MiB")


class ColumnBudget:
    """The size that the values of several payloads may still have. It is unlimited for one payload."""

    __slots__ = ("_is_limited", "_left")

    def __init__(self, payloads: int, size: int = COLUMN_BYTES_MAX) -> None:
        self._is_limited = payloads > 1
        self._left = size

    def take(self, size: int) -> None:
        """Count bytes.

        Raises:
            ColumnTooLargeError: The payloads must be decoded in smaller parts.
        """
        self._left -= size
        if self._left < 0 and self._is_limited:
            raise ColumnTooLargeError


def decode_in_parts(decode: Callable[[int, int], Result], start: int, count: int) -> Iterator[Result]:
    """Yield the results of `decode` for ranges of payloads, which are halved after a ColumnTooLargeError."""
    pending = [(start, count)]
    while pending:
        start, count = pending.pop()
        try:
            result = decode(start, count)
        except ColumnTooLargeError:
            half = count // 2
            pending += [(start + half, count - half), (start, half)]
            continue
        yield result


def check_json_size(form: JsonForm, size_max: int) -> None:
    """Check the size of the JSON of a form before it is encoded.

    Raises:
        UndecodableValueError: The JSON is larger than `size_max`.
    """
    if _exceeds(form, size_max):
        raise UndecodableValueError(f"the value has more than {size_max >> 20} MiB as JSON")


def _exceeds(form: JsonForm, size_max: int) -> bool:
    """Return whether the JSON of a form is larger. Names are shared in the form, but not in its JSON.

    Encoding takes place in one step, in which no other thread of the process runs.
    """
    size = 0
    values = [form]
    while values:
        value = values.pop()
        match value:
            case str():
                size += len(value) + 2
            case dict():
                size += sum(map(len, value)) + 4 * len(value) + 2
                values.extend(value.values())
            case list():
                size += len(value) + 2
                values.extend(value)
            case _:
                size += 1
        if size > size_max:
            return True
    return False
