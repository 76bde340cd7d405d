"""AddRaftVoter: add a voter to the Raft quorum of the metadata log.

Version 1 can be acknowledged before the change is committed.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, uint16, uuid


class AddedVoterListener(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class AddRaftVoterRequest(Request):
    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[AddedVoterListener] = array(AddedVoterListener, "0+")
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
