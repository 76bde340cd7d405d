"""ImportSecurity: import users with their SCRAM credentials, ACLs and quotas of another cluster.

An API of Chronik, which ApiVersions does not list. Existing entries are kept, so the request is idempotent.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, binary, float64, int8, int16, int32, string, uuid


class ImportedKeys(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    stored_key: bytes = binary("0+")
    server_key: bytes = binary("0+")

    def __repr__(self) -> str:
        return f"ImportedKeys(mechanism={self.mechanism}, …)"


class ImportedUser(Struct):
    name: str = string("0+")
    keys: list[ImportedKeys] = array(ImportedKeys, "0+")


class ImportedAcl(Struct):
    resource_type: int = int8("0+")
    name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission: int = int8("0+")


class ImportedEntity(Struct):
    kind: str = string("0+")
    name: str | None = string("0+", nullable="0+", default=None)
    """The entity name; null for the default entity."""


class ImportedQuota(Struct):
    key: str = string("0+")
    value: float = float64("0+")


class ImportedQuotas(Struct):
    entity: list[ImportedEntity] = array(ImportedEntity, "0+")
    values: list[ImportedQuota] = array(ImportedQuota, "0+")


class ImportSecurityRequest(Request):
    import_id: bytes = uuid("0+")
    users: list[ImportedUser] = array(ImportedUser, "0+")
    acls: list[ImportedAcl] = array(ImportedAcl, "0+")
    quotas: list[ImportedQuotas] = array(ImportedQuotas, "0+")


class ImportSecurityResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
