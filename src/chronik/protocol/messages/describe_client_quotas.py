"""DescribeClientQuotas: list the quotas of users, client ids and IP addresses."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, boolean, float64, int8, int16, int32, string


class QuotaComponent(Struct):
    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


class DescribeClientQuotasRequest(Request):
    components: list[QuotaComponent] = array(QuotaComponent, "0+")
    strict: bool = boolean("0+")


class DescribedQuotaEntity(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class QuotaValue(Struct):
    key: str = string("0+")
    value: float = float64("0+")


class DescribedQuotaEntry(Struct):
    entity: list[DescribedQuotaEntity] = array(DescribedQuotaEntity, "0+")
    values: list[QuotaValue] = array(QuotaValue, "0+")


class DescribeClientQuotasResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[DescribedQuotaEntry] | None = array(DescribedQuotaEntry, "0+", nullable="0+", default=None)
