"""AddOffsetsToTxn: add a group's offsets to a transaction.

Version 2 adds PRODUCER_FENCED, version 4 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+", default=-1)
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
