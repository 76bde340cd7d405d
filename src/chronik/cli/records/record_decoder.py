"""Decoding of the typed keys and values that `chronik consume` prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

from chronik.client.records import ConsumedRecord
from chronik.errors import ChronikError
from chronik.formats.codec import WriterSchema
from chronik.formats.framing import SchemaKey
from chronik.formats.registry_client import RegistryClient, RegistryUnavailableError, SchemaUnknownError
from chronik.formats.typed_values import TypedFields, TypedValue, TypedValueReader, UndecodedValue, find_frame

UNKNOWN_SCHEMAS_MAX: Final = 10
"""Number of unknown schemas after which the keys or values of a topic count as binary data without schemas, unless one
was decoded. Each of them costs a request that is repeated after a delay; the requests for further ones are not."""

REPORTED_PROBLEMS_MAX: Final = 100
"""Maximum number of different reasons why values could not be decoded that are reported on stderr."""


RecordDecoder = Callable[[ConsumedRecord], TypedFields]


class _FieldState:
    """What is known about the keys or about the values of a topic."""

    def __init__(self) -> None:
        self.is_typed = False
        """Whether one was decoded."""
        self.is_ignored = False
        """Whether they are no longer decoded."""
        self.unknown: set[object] = set()
        """The unknown schemas that they name."""


class RegistryRecordDecoder:
    """A decoder of the records of a topic with the schemas of a registry, which is opened for the first typed value.

    If the user has not asked for decoding, a registry that is missing or not available disables it, with a warning.
    """

    def __init__(self, arguments: argparse.Namespace, open_registry: Callable[[argparse.Namespace], RegistryClient]):
        self._arguments = arguments
        self._open_registry = open_registry
        self._is_required = arguments.decode is True or arguments.registry is not None
        self._client: RegistryClient | None = None
        self._reader: TypedValueReader | None = None
        self._is_disabled = False
        self._states = {True: _FieldState(), False: _FieldState()}

    def __call__(self, record: ConsumedRecord) -> TypedFields:
        """Decode the key and the value of a record.

        Raises:
            ChronikError: The registry cannot be opened or does not respond, although the user has asked for decoding.
        """
        return TypedFields(self._read(record, record.key, is_key=True), self._read(record, record.value, is_key=False))

    def close(self) -> None:
        """Close the connection to the registry."""
        if self._client is not None:
            self._client.close()

    def _read(self, record: ConsumedRecord, data: bytes | None, *, is_key: bool) -> TypedValue | UndecodedValue | None:
        state = self._states[is_key]
        frame = find_frame(data, record.headers, is_key=is_key)
        if frame is None or state.is_ignored or self._is_disabled:
            return None
        try:
            if self._reader is None:
                self._client = self._open_registry(self._arguments)
                self._reader = TypedValueReader(self._fetch_schema)
        except ChronikError as error:
            self._disable(error)
            return None
        try:
            found = self._reader.read(frame)
        except RegistryUnavailableError as error:
            self._disable(error)
            return None
        except SchemaUnknownError as error:
            if len(state.unknown) < UNKNOWN_SCHEMAS_MAX:
                state.unknown.add(frame.schema)
            if len(state.unknown) == UNKNOWN_SCHEMAS_MAX and not state.is_typed:
                state.is_ignored = True
                field = "keys" if is_key else "values"
                _warn(f"{record.topic}: {field} are not decoded: the registry has none of the schemas that they name")
            return UndecodedValue(frame.schema, str(error))
        except ChronikError as error:
            return UndecodedValue(frame.schema, str(error))
        state.is_typed = True
        return found

    def _fetch_schema(self, key: SchemaKey) -> WriterSchema:
        assert self._client is not None, "the reader was created with a client"
        confirms = all(len(state.unknown) < UNKNOWN_SCHEMAS_MAX for state in self._states.values())
        return self._client.fetch_schema(key, confirms=confirms)

    def _disable(self, error: ChronikError) -> None:
        if self._is_required:
            raise error
        self._is_disabled = True
        _warn(f"typed values are not decoded: {error}")


class ProblemReporter:
    """A function that replaces typed fields of records with text, and reports on stderr why others are not decoded."""

    def __init__(self, decode: RecordDecoder) -> None:
        self._decode = decode
        self._reported: set[str] = set()

    def __call__(self, record: ConsumedRecord) -> ConsumedRecord:
        typed = self._decode(record)
        return record._replace(
            key=self._to_text(record, "key", record.key, typed.key),
            value=self._to_text(record, "value", record.value, typed.value),
        )

    def _to_text(
        self, record: ConsumedRecord, field: str, data: bytes | None, typed: TypedValue | UndecodedValue | None
    ) -> bytes | None:
        if typed is None:
            return data
        if isinstance(typed, UndecodedValue):
            if typed.reason not in self._reported and len(self._reported) < REPORTED_PROBLEMS_MAX:
                self._reported.add(typed.reason)
                where = f"{record.topic}-{record.partition} offset {record.offset}"
                _warn(f"{where}: the {field} is printed undecoded: {typed.reason}")
            return data
        return typed.form.encode() if isinstance(typed.form, str) else typed.json


def _warn(message: str) -> None:
    print(f"chronik: warning: {message}", file=sys.stderr)
