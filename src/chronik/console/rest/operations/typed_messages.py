"""Decoding of typed keys and values for one operation, with the permissions of its principal.

It runs in the operation's thread. Only the lookups of schemas run on the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeVar
from uuid import UUID

from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.messages import ShownSchema
from chronik.errors import ChronikError
from chronik.formats.codec import ReferencedSchema, UnsupportedSchemaError, ValueFormat, WriterSchema
from chronik.formats.framing import SchemaKey
from chronik.formats.typed_values import TypedValueReader, find_frame
from chronik.limits import KIB, SCHEMA_REFERENCES_MAX
from chronik.metadata.schemas import DEFAULT_CONTEXT, join_subject, qualify_reference, split_subject
from chronik.protocol.permissions import AclOperation
from chronik.protocol.records import Record
from chronik.registry.access import RegistryAccess
from chronik.registry.entities import SchemaReference, SubjectSchema, SubjectVersion
from chronik.registry.errors import RegistryError, SchemaNotFoundError
from chronik.registry.service import SchemaRegistry

T = TypeVar("T")

VALUE_BYTES_MAX: Final = 256 * KIB
"""Maximum size of a key or value that is decoded. The largest takes a few tens of milliseconds."""

SCHEMAS_MAX: Final = 50
"""Maximum number of schemas that one operation looks up. Binary data that is not typed may name any number of them."""

LOOKUP_SECONDS_MAX: Final = 5.0
REMEMBERED_SECONDS: Final = 10.0
"""Time after which a long operation looks up schemas again, because the principal may no longer read them."""

FORMATS: Final = {"AVRO": ValueFormat.AVRO, "JSON": ValueFormat.JSON_SCHEMA, "PROTOBUF": ValueFormat.PROTOBUF}

_API: Final = "ReadMessages"
_FieldName = Literal["key", "value"]


class DecodedField(NamedTuple):
    """A key or value that names a schema."""

    json: bytes | None
    """The value as JSON; None if it was not decoded."""
    schema: ShownSchema


class DecodedFields(NamedTuple):
    """The decoded key and value of a record; None where they name no schema."""

    key: DecodedField | None = None
    value: DecodedField | None = None


NOT_DECODED: Final = DecodedFields()


class _KnownSchema(NamedTuple):
    """A schema that was looked up, and a version that has it."""

    schema: WriterSchema
    version: SubjectVersion


class MessageDecoder:
    """A decoder of the records of a topic, with a budget of CPU time. Not thread-safe."""

    def __init__(self, context: OperationContext, topic: str, cpu_seconds: float) -> None:
        self._context = context
        self._topic = topic
        services = context.node.services
        self._registry = SchemaRegistry(services.store, now_ms=services.clock.now_ms)
        access = RegistryAccess(services.authorizer, context.cluster.peer, _API)
        self._visible = access.build_filter(AclOperation.READ)
        self._reader = TypedValueReader(self._fetch_schema)
        self._known: dict[SchemaKey, _KnownSchema | ChronikError] = {}
        self._forget_at = time.monotonic() + REMEMBERED_SECONDS
        self._cpu_seconds = self._left_seconds = cpu_seconds

    def renew(self) -> None:
        """Start a new budget of CPU time, and forget schemas that were looked up too long ago."""
        self._left_seconds = self._cpu_seconds
        now = time.monotonic()
        if now >= self._forget_at:
            self._known.clear()
            self._forget_at = now + REMEMBERED_SECONDS

    def decode(self, record: Record) -> DecodedFields:
        """Decode the key and the value of a record if they name schemas."""
        return DecodedFields(
            self._decode_field(record.key, record.headers, "key"),
            self._decode_field(record.value, record.headers, "value"),
        )

    def is_typed(self, records: Iterable[Record]) -> bool:
        """Return whether the first record with a value, or its key, names a schema."""
        for record in records:
            if find_frame(record.key, record.headers, is_key=True):
                return True
            if record.value is not None:
                return find_frame(record.value, record.headers, is_key=False) is not None
        return False

    def _decode_field(
        self, data: bytes | None, headers: Iterable[tuple[str, bytes | None]], field: _FieldName
    ) -> DecodedField | None:
        frame = find_frame(data, headers, is_key=field == "key")
        if frame is None:
            return None
        if len(frame.payload) > VALUE_BYTES_MAX:
            problem = f"the {field} has more than {VALUE_BYTES_MAX // KIB} KiB"
            return DecodedField(None, self._describe(frame.schema, field, problem=problem))
        if self._left_seconds <= 0:
            problem = "decoding took too long: read fewer messages"
            return DecodedField(None, self._describe(frame.schema, field, problem=problem))
        started = time.thread_time()
        try:
            found = self._reader.read(frame)
            return DecodedField(found.json, self._describe(frame.schema, field, format=found.format))
        except ChronikError as error:
            return DecodedField(None, self._describe(frame.schema, field, problem=str(error)))
        finally:
            self._left_seconds -= time.thread_time() - started

    def _describe(
        self, key: SchemaKey, field: _FieldName, *, format: ValueFormat | None = None, problem: str | None = None
    ) -> ShownSchema:
        known = self._known.get(key)
        version = None
        if isinstance(known, _KnownSchema):
            format, version = known.schema.format, known.version
        return ShownSchema(
            id=key if isinstance(key, int) else None,
            guid=str(key) if isinstance(key, UUID) else None,
            format=format,
            subject=None if version is None else version.subject,
            version=None if version is None else version.version,
            problem=problem,
        )

    # Schemas

    def _fetch_schema(self, key: SchemaKey) -> WriterSchema:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= SCHEMAS_MAX:
                raise UnsupportedSchemaError(f"the messages name more than {SCHEMAS_MAX} schemas: read fewer messages")
            try:
                known = self._look_up(key)
            except ChronikError as error:
                known = error
            self._known[key] = known
        if isinstance(known, ChronikError):
            raise known
        return known.schema

    def _look_up(self, key: SchemaKey) -> _KnownSchema:
        """Look up a schema and a version that has it, if possible of the topic's own subject.

        Raises:
            ChronikError: The schema does not exist, or the principal may not read it.
        """
        context, schema_id = DEFAULT_CONTEXT, key
        if not isinstance(key, int):
            ids = self._run(self._registry.list_ids_of_guid(str(key), visible=self._visible), key)
            if not ids:
                raise _build_unknown_schema_error(key)
            context, schema_id = ids[0].context, ids[0].id
        assert isinstance(schema_id, int)
        subject = join_subject(context, f"{self._topic}-value")
        found = self._run(self._registry.get_by_id(schema_id, subject, visible=self._visible), key)
        assert found.subject is not None
        assert found.version is not None
        format = FORMATS.get(found.schema_type)
        if format is None:
            raise UnsupportedSchemaError(f"schemas of type {found.schema_type} are not supported")
        referenced: dict[str, ReferencedSchema] = {}
        self._add_references(found.references or (), split_subject(found.subject)[0], referenced)
        schema = WriterSchema(format, found.schema, tuple(referenced.values()))
        return _KnownSchema(schema, SubjectVersion(found.subject, found.version))

    def _add_references(
        self, references: Iterable[SchemaReference], context: str, found: dict[str, ReferencedSchema]
    ) -> None:
        """Add referenced schemas, each after those to which it refers itself."""
        for reference in references:
            if reference.name in found:
                continue
            if len(found) >= SCHEMA_REFERENCES_MAX:
                raise UnsupportedSchemaError(f"the schema refers to more than {SCHEMA_REFERENCES_MAX} other schemas")
            version = self._run(self._read_version(qualify_reference(context, reference.subject), reference), reference)
            self._add_references(version.references or (), split_subject(version.subject)[0], found)
            found[reference.name] = ReferencedSchema(reference.name, version.schema)

    async def _read_version(self, subject: str, reference: SchemaReference) -> SubjectSchema:
        resolved = await self._registry.resolve_alias(subject)
        if not self._visible(resolved):
            raise UnsupportedSchemaError(f"the schema refers to subject {resolved}, which you may not read")
        return await self._registry.get_version(resolved, reference.version, deleted=True)

    def _run(self, lookup: Coroutine[Any, Any, T], key: SchemaKey | SchemaReference) -> T:
        """Run a lookup on the event loop."""
        try:
            return self._context.loop_bridge.run(lookup, LOOKUP_SECONDS_MAX)
        except SchemaNotFoundError:
            raise _build_unknown_schema_error(key) from None
        except TimeoutError:
            raise RegistryError(f"the lookup of {_name(key)} took more than {LOOKUP_SECONDS_MAX:g} s") from None


def _build_unknown_schema_error(key: SchemaKey | SchemaReference) -> RegistryError:
    return RegistryError(f"{_name(key)} does not exist, or you may not read its subjects")


def _name(key: SchemaKey | SchemaReference) -> str:
    return f"schema {key.name}" if isinstance(key, SchemaReference) else f"schema {key}"
