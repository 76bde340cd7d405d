"""Console requests between nodes: forwarding a Kafka request for a user, and querying the status of a node."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from chronik.errors import ChronikError
from chronik.peers.calls import CallKind, CallRejected, PeerCalls
from chronik.principals import Principal
from chronik.request_reply import Buffer, ConnectedClient, Disconnect, Dispatch, dispatch_without_connection
from chronik.scheduler import Scheduler

_THROTTLED: Final = struct.Struct(">d")
"""The binary layout of the prefix of a forwarded response: the client's throttle time in seconds."""


class ForwardedRequest(msgspec.Struct, array_like=True):
    """A client's Kafka request that a node forwards to another node, with the principal that it has authenticated."""

    principal_type: str
    principal_name: str
    host: str
    listener: str
    frame: bytes


class AdminCalls:
    """The calls by which a node's web console queries other nodes, and their handlers (see `OtherNodes`)."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls

    def serve(
        self,
        dispatch: Dispatch,
        scheduler: Scheduler,
        status: Callable[[], dict[str, Any]],
        receive_health: Callable[[bytes], Awaitable[bytes]],
        answer_history_query: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        """Register the handlers of other nodes' console calls. Must be called before the peer transport starts."""

        async def answer(peer: int, payload: Buffer) -> Sequence[Buffer]:
            try:
                asked = msgspec.msgpack.decode(payload, type=ForwardedRequest)
            except msgspec.DecodeError as error:
                raise CallRejected(f"the request cannot be decoded: {error}") from error
            client = ConnectedClient(
                asked.host, 0, 0, asked.listener, Principal(asked.principal_type, asked.principal_name)
            )
            try:
                response = await dispatch_without_connection(dispatch, scheduler, bytearray(asked.frame), client)
            except Disconnect as error:
                raise CallRejected(str(error)) from error
            return [_THROTTLED.pack(client.throttle_seconds), *(response or ())]

        async def answer_status(peer: int, payload: Buffer) -> Sequence[Buffer]:
            return [msgspec.json.encode(status())]

        async def answer_health(peer: int, payload: Buffer) -> Sequence[Buffer]:
            try:
                return [await receive_health(bytes(payload))]
            except msgspec.DecodeError as error:
                raise CallRejected(f"the report cannot be decoded: {error}") from error

        async def answer_history(peer: int, payload: Buffer) -> Sequence[Buffer]:
            try:
                return [await answer_history_query(bytes(payload))]
            except (msgspec.DecodeError, ChronikError) as error:
                raise CallRejected(f"the query cannot be answered: {error}") from error

        self._calls.register(CallKind.HEALTH, answer_health)
        self._calls.register(CallKind.HISTORY, answer_history)
        self._calls.register(CallKind.ADMIN, answer)
        self._calls.register(CallKind.STATUS, answer_status)

    async def forward_request(
        self, node_id: int, principal: Principal, host: str, listener: str, frame: bytes, timeout_s: float
    ) -> tuple[bytes, float]:
        """Forward a Kafka request to another node; return the response frame and the throttle time in seconds."""
        asked = msgspec.msgpack.encode(ForwardedRequest(principal.type, principal.name, host, listener, frame))
        answer = await self._calls.call(node_id, CallKind.ADMIN, asked, timeout_s)
        (throttled_s,) = _THROTTLED.unpack_from(answer)
        return bytes(answer[_THROTTLED.size :]), throttled_s

    async def fetch_status(self, node_id: int, timeout_s: float) -> dict[str, Any]:
        """Return the status of another node."""
        answer = await self._calls.call(node_id, CallKind.STATUS, b"", timeout_s)
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise CallRejected(f"the response of node {node_id} cannot be decoded: {error}") from error

    async def query_history(self, node_id: int, query: bytes, timeout_s: float) -> bytes:
        """Return the encoded answer of another node to an encoded `HistoryQuery`."""
        return bytes(await self._calls.call(node_id, CallKind.HISTORY, query, timeout_s))

    async def report_health(self, node_id: int, report: bytes, timeout_s: float) -> bytes:
        """Send this node's health report to the controller, and return its response."""
        return bytes(await self._calls.call(node_id, CallKind.HEALTH, report, timeout_s))
