"""AlterClientQuotas: change the quotas of users, client ids and IP addresses."""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    float64,
    int16,
    int32,
    mirror_request_field,
    string,
)


class AlteredEntity(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class QuotaOperation(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class QuotaAlterationEntry(Struct):
    entity: list[AlteredEntity] = array(AlteredEntity, "0+")
    ops: list[QuotaOperation] = array(QuotaOperation, "0+")


class AlterClientQuotasRequest(Request):
    entries: list[QuotaAlterationEntry] = array(QuotaAlterationEntry, "0+")
    validate_only: bool = boolean("0+")


class QuotaAlterationEntity(Struct):
    entity_type: str = mirror_request_field("entity_type", string("0+"))
    entity_name: str | None = mirror_request_field("entity_name", string("0+", nullable="0+"))


class QuotaAlterationResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[QuotaAlterationEntity] = mirror_request_field("entity", array(QuotaAlterationEntity, "0+"))


class AlterClientQuotasResponse(Response):
    throttle_time_ms: int = int32("0+")
    entries: list[QuotaAlterationResult] = mirror_request_field("entries", array(QuotaAlterationResult, "0+"))
