"""InitProducerId: allocate an id and epoch for an idempotent or transactional producer.

Version 3 lets a producer keep its id, 4 adds PRODUCER_FENCED, 5 implies transactions v2. Version 6 (two-phase commit)
is unstable in Kafka and not declared.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, int16, int32, int64, string


class InitProducerIdRequest(Request):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+", default=-1)
