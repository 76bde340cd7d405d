"""ImportSchemas (Chronik API key 20010): imports another cluster's schema registry; existing entries are kept."""

from __future__ import annotations

import msgspec

from chronik.admin.schema_import import import_registry_commands
from chronik.admin.security_import import check_import_in_progress
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.commands.schemas import ImportableCommand, decode_importable_command
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.import_schemas import ImportSchemasRequest, ImportSchemasResponse


async def handle(services: Services, request: ImportSchemasRequest, context: RequestContext) -> ImportSchemasResponse:
    return await import_schemas(services.store, request)


async def import_schemas(store: MetadataStore, request: ImportSchemasRequest) -> ImportSchemasResponse:
    """Import entries of a schema registry; errors are returned in the response."""
    try:
        await store.read_barrier()
        check_import_in_progress(store, request.import_id)
        await import_registry_commands(store, [_decode_command(each.data) for each in request.commands])
    except KafkaError as error:
        return ImportSchemasResponse(**build_error_fields(error))
    return ImportSchemasResponse()


def _decode_command(data: bytes) -> ImportableCommand:
    try:
        return decode_importable_command(data)
    except msgspec.MsgspecError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"invalid command of the schema registry: {error}") from error
