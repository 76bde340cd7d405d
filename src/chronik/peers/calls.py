"""Calls between nodes: requests with one response, over the peer connections. `CallKind` lists all calls.

A request is sent on the caller's own connection, and the response arrives on the same connection. If it breaks, all
pending calls on it fail with PeerUnavailable. Calls are never repeated automatically; the caller decides about retries.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum, unique
from typing import Final, Generic, TypeVar

import msgspec

from chronik.errors import ChronikError, InvalidPeerMessage, check_invariant, exc_info_if_unexpected, find_root_cause
from chronik.files import Buffer
from chronik.peers.connection import PeerConnection
from chronik.peers.frames import FRAME_BYTES_MAX, RESPONSE_FRAME_BYTES_MAX, FrameKind, encode_frame, encode_frame_header

logger = logging.getLogger("chronik.raft")

PENDING_CALLS_MAX: Final = 1024
"""The maximum number of pending calls to a peer, and of pending calls from it. Further calls are rejected."""

UNSENT_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The maximum size of responses queued for a peer in bytes. Above this limit, the connection is closed."""

PAYLOAD_BYTES_MAX: Final = FRAME_BYTES_MAX - 64
RESPONSE_BYTES_MAX: Final = RESPONSE_FRAME_BYTES_MAX - 64
_REQUEST: Final = struct.Struct(">QH")
_RESPONSE: Final = struct.Struct(">QB")
_NO_RESPONSE_ID: Final = 0
"""The call id of requests whose response is discarded."""

CallHandler = Callable[[int, Buffer], Awaitable[Sequence[Buffer]]]
"""A function that handles a call: it takes the calling node's id and the payload, and returns the response buffers.

Raises CallRejected to reject the call."""

SendRequest = Callable[[int, bytes], bool]
"""A function that queues a request frame for a peer. Returns False if the peer is not connected or its queue is full.
"""

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_encoder: Final = msgspec.msgpack.Encoder()


@unique
class CallKind(IntEnum):
    """The kind of a call between nodes. The numbers are part of the peer protocol and must never change."""

    FORWARD = 1  # to the leader: propose a command
    PING = 2  # answered immediately and without contents; "unknown kind" from older nodes is an answer too
    HEARTBEAT = 16  # to the controller: the broker is alive in the given epoch
    QUORUM = 17  # to the leader: describe the quorum
    JOIN = 18  # to any node: request admission to the cluster
    FETCH = 19  # from a follower to a partition leader: fetch records
    WAKE = 20  # from a follower: complete the pending fetch immediately
    MARKERS = 21  # from a transaction coordinator to a partition leader: write transaction markers
    JOIN_TRANSACTION = 22  # to a transaction coordinator: add a partition or group to the transaction
    ADMIN = 23  # from a node's console: execute a request on behalf of a logged-in user
    STATUS = 24  # from a node's console: return the node's status
    HEALTH = 25  # to the controller: report the node's health facts; the response has the cluster's problems
    HISTORY = 26  # from a node's console: return values of the node's history


_PING_KIND: Final = int(CallKind.PING)  # an enum member lookup is eight times as slow


PING: Final = encode_frame(FrameKind.REQUEST, _REQUEST.pack(_NO_RESPONSE_ID, _PING_KIND))


class PeerUnavailable(ChronikError):
    """The peer is not connected, the connection broke before the response arrived, or the peer is overloaded."""

    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class CallTimedOut(ChronikError):
    """The peer did not respond in time. The call may or may not have been executed."""


class CallRejected(ChronikError):
    """The handler of the called peer has rejected the call. The message is that of the handler's exception."""


class CallStatus(IntEnum):
    """The status of a call's response. The numbers are part of the peer protocol and must never change."""

    OK = 0
    REJECTED = 1
    UNKNOWN_KIND = 2
    OVERLOADED = 3


class PeerCalls:
    """The remote procedure calls of a node: its calls to other nodes, and the handlers of calls from other nodes."""

    def __init__(self, send: SendRequest) -> None:
        self._send = send
        self._handlers: dict[int, CallHandler] = {}
        self._next_id = _NO_RESPONSE_ID + 1
        self._pending_calls: dict[int, dict[int, asyncio.Future[memoryview]]] = {}
        self._running_requests: dict[PeerConnection, set[asyncio.Task[None]]] = {}

    def register(self, kind: int, handler: CallHandler) -> None:
        """Register the handler of a kind of call. Must be called before the peer transport starts."""
        check_invariant(
            kind not in self._handlers and 0 <= kind < 2**16, f"peer call: duplicate or invalid kind {kind}"
        )
        self._handlers[kind] = handler

    async def call(self, peer: int, kind: int, payload: bytes, timeout: float) -> memoryview:
        """Call a peer and return its response. Raises PeerUnavailable, CallTimedOut or CallRejected."""
        check_invariant(len(payload) <= PAYLOAD_BYTES_MAX, f"peer call: payload of {len(payload)} bytes is too large")
        pending = self._pending_calls.setdefault(peer, {})
        if len(pending) >= PENDING_CALLS_MAX:
            raise PeerUnavailable(f"too many pending calls to node {peer}: {len(pending)}", may_have_arrived=False)
        call_id = self._next_id
        self._next_id += 1
        if not self._send(peer, encode_frame(FrameKind.REQUEST, _REQUEST.pack(call_id, kind) + payload)):
            raise PeerUnavailable(f"no connection to node {peer}", may_have_arrived=False)
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        pending[call_id] = answer
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise CallTimedOut(f"node {peer} did not respond within {timeout:g} s") from None
        finally:
            pending.pop(call_id, None)

    # ------------------------------------------------------------------------------------------------ transport
    # callbacks

    def on_response(self, peer: int, content: Buffer) -> None:
        """Complete the pending call of a received response. Raise InvalidPeerMessage if the response is malformed."""
        if len(content) < _RESPONSE.size:
            raise InvalidPeerMessage("peer response is too short")
        call_id, status = _RESPONSE.unpack_from(content)
        answer = self._pending_calls.get(peer, {}).get(call_id)
        if answer is None or answer.done():
            return  # the call has timed out
        payload = memoryview(content)[_RESPONSE.size :]
        if status == CallStatus.OK:
            answer.set_result(payload)
        elif status == CallStatus.OVERLOADED:
            answer.set_exception(PeerUnavailable(f"node {peer} is overloaded", may_have_arrived=False))
        else:
            answer.set_exception(CallRejected(bytes(payload).decode(errors="replace")))

    def fail_pending_calls(self, peer: int) -> None:
        """Fail all pending calls to a peer, because its connection was closed."""
        for answer in self._pending_calls.pop(peer, {}).values():
            if not answer.done():
                answer.set_exception(
                    PeerUnavailable(f"connection to node {peer} was lost during the call", may_have_arrived=True)
                )

    def on_request(self, connection: PeerConnection, content: Buffer) -> None:
        """Start the handler of a received call. Raise InvalidPeerMessage if the request is malformed."""
        if len(content) < _REQUEST.size:
            raise InvalidPeerMessage("peer request is too short")
        call_id, kind = _REQUEST.unpack_from(content)
        if kind == _PING_KIND:
            connection.on_ping_received()
            _send_response(connection, call_id, CallStatus.OK, [])
            return
        handler = self._handlers.get(kind)
        pending = self._running_requests.setdefault(connection, set())
        if handler is None:
            _send_response(connection, call_id, CallStatus.UNKNOWN_KIND, [f"unknown kind of call: {kind}".encode()])
        elif len(pending) >= PENDING_CALLS_MAX:
            _send_response(connection, call_id, CallStatus.OVERLOADED, [])
        else:
            work = _handle_call(connection, call_id, handler, content[_REQUEST.size :])
            task = asyncio.get_running_loop().create_task(work, name=f"call of kind {kind} from node {connection.peer}")
            pending.add(task)
            task.add_done_callback(pending.discard)

    def cancel_requests(self, connection: PeerConnection) -> None:
        """Cancel the handlers of all calls received on a connection that was closed."""
        for task in self._running_requests.pop(connection, ()):
            task.cancel()


async def _handle_call(connection: PeerConnection, call_id: int, handler: CallHandler, payload: Buffer) -> None:
    try:
        answer = await handler(connection.peer, payload)
        size = sum(map(len, answer))
        check_invariant(size <= RESPONSE_BYTES_MAX, f"peer call: response of {size} bytes is too large")
    except CallRejected as error:
        _send_response(connection, call_id, CallStatus.REJECTED, [str(error).encode()])
    except Exception as error:
        told = "call from node %d failed: %s; the caller gets an error"
        logger.error(told, connection.peer, find_root_cause(error), exc_info=exc_info_if_unexpected(error))
        _send_response(connection, call_id, CallStatus.REJECTED, [b"the call failed on the remote node; see its log"])
    else:
        _send_response(connection, call_id, CallStatus.OK, answer)


def _send_response(connection: PeerConnection, call_id: int, status: CallStatus, buffers: Sequence[Buffer]) -> None:
    if connection.unsent_bytes > UNSENT_RESPONSE_BYTES_MAX:
        connection.close("the peer does not read its responses", logging.WARNING)
    else:
        # Not joined, because a response may contain megabytes of records.
        size = sum(map(len, buffers))
        head = encode_frame_header(FrameKind.RESPONSE, _RESPONSE.size + size) + _RESPONSE.pack(call_id, status)
        connection.send([head, *buffers])


class TypedCall(Generic[RequestT, ResponseT]):
    """A kind of call between nodes whose requests and responses are structs."""

    def __init__(self, kind: int, request: type[RequestT], answer: type[ResponseT]) -> None:
        self.kind: Final = kind
        self._request = msgspec.msgpack.Decoder(request)
        self._send_response = msgspec.msgpack.Decoder(answer)

    def encode_response(self, answer: ResponseT) -> Sequence[Buffer]:
        return [_encoder.encode(answer)]

    def decode_response(self, payload: memoryview) -> ResponseT:
        """Decode a response. Raise msgspec.DecodeError if it is invalid."""
        return self._send_response.decode(payload)

    async def call(self, calls: PeerCalls, peer: int, request: RequestT, timeout: float) -> ResponseT:
        """Call a peer and return the decoded response. Raises PeerUnavailable, CallTimedOut or CallRejected."""
        payload = await calls.call(peer, self.kind, _encoder.encode(request), timeout)
        try:
            return self.decode_response(payload)
        except msgspec.DecodeError as error:
            raise CallRejected(f"malformed response from node {peer}: {error}") from error

    def serve(self, calls: PeerCalls, handler: Callable[[int, RequestT], Awaitable[ResponseT]]) -> None:
        """Register the handler of this kind of call, a function from the decoded request to the response struct."""

        async def handle(peer: int, payload: Buffer) -> Sequence[Buffer]:
            try:
                request = self._request.decode(payload)
            except msgspec.DecodeError as error:
                raise CallRejected(f"malformed request: {error}") from error
            return self.encode_response(await handler(peer, request))

        calls.register(self.kind, handle)
