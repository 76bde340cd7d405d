"""RemoveRaftVoter: remove a voter from the Raft quorum of the metadata log."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")


class RemoveRaftVoterResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
