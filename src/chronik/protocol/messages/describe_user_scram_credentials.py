"""DescribeUserScramCredentials: return the SCRAM mechanisms of users."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class ScramUser(Struct):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Request):
    users: list[ScramUser] | None = array(ScramUser, "0+", nullable="0+")


class DescribedScramCredential(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribedScramUser(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[DescribedScramCredential] = array(DescribedScramCredential, "0+")


class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribedScramUser] = array(DescribedScramUser, "0+")
