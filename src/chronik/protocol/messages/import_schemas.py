"""ImportSchemas: import schemas, versions, settings and contexts of another cluster's schema registry.

An API of Chronik, which ApiVersions does not list. Existing entries are kept, so the request is idempotent.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, binary, int16, int32, string, uuid


class ImportedRegistryCommand(Struct):
    """A command of the schema registry (see `encode_importable_command`)."""

    data: bytes = binary("0+")


class ImportSchemasRequest(Request):
    import_id: bytes = uuid("0+")
    commands: list[ImportedRegistryCommand] = array(ImportedRegistryCommand, "0+")
    """Commands that do not depend on each other: they are applied in any order."""


class ImportSchemasResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
