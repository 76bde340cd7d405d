"""EndTxn: commit or abort a transaction.

Version 2 adds PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE. From version 5 on (transactions v2) the response has the
producer id and epoch of the next transaction; the id changes only when its epochs are exhausted.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+", default=-1)
    committed: bool = boolean("0+")


class EndTxnResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
