"""Questions between nodes, over the connections that their messages use; `call_kinds` lists what may be asked.

A request travels on the asker's own connection and is answered on the same one; when it breaks, everything under way
on it ends in PeerUnavailable. Nothing is sent twice: whether to ask again is for the caller to decide.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Final, Generic, TypeVar

import msgspec

from chronik.errors import BadMessage, ChronikError, invariant, reason_of, unexpected
from chronik.files import Buffer
from chronik.peers.call_kinds import CallKind
from chronik.peers.connection import PeerConnection
from chronik.peers.frames import ANSWER_FRAME_BYTES_MAX, FRAME_BYTES_MAX, FrameKind, encode_frame, frame_head

logger = logging.getLogger("chronik.raft")

CALLS_UNDER_WAY_MAX: Final = 1024
"""Unanswered calls from one peer, or to one peer. A node that asks more has lost count of its retries."""

ANSWERS_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Answers that a peer asked for and does not read. With more of them the connection is closed: that peer hangs."""

PAYLOAD_BYTES_MAX: Final = FRAME_BYTES_MAX - 64
ANSWER_BYTES_MAX: Final = ANSWER_FRAME_BYTES_MAX - 64
_REQUEST: Final = struct.Struct(">QH")
_RESPONSE: Final = struct.Struct(">QB")
_NOBODY_ASKS: Final = 0
"""Stands in place of a call's number when nobody waits for the answer."""

_PING_KIND: Final = int(CallKind.PING)  # a member of an enum is found eight times as slowly
PING: Final = encode_frame(FrameKind.REQUEST, _REQUEST.pack(_NOBODY_ASKS, _PING_KIND))


class PeerUnavailable(ChronikError):
    """There is no connection to the peer, or it broke before the answer came, or it has too much to do."""

    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class CallTimedOut(ChronikError):
    """The peer did not answer in time; what was asked for may have been done, or may still be done."""


class CallRefused(ChronikError):
    """The peer refuses: a handler there raised this, and it is raised here with the same message."""


class Status(IntEnum):
    """How a call ended. These numbers must never change."""

    OK = 0
    REFUSED = 1
    UNKNOWN_KIND = 2
    OVERLOADED = 3


Handler = Callable[[int, Buffer], Awaitable[Sequence[Buffer]]]
"""Takes the asking node and the payload, returns the answer in pieces, which need not be joined. Raises CallRefused."""

SendRequest = Callable[[int, bytes], bool]
"""Queues a frame for a peer; returns False when there is no connection to it, or no room."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class PeerCalls:
    def __init__(self, send: SendRequest) -> None:
        self._send = send
        self._handlers: dict[int, Handler] = {}
        self._next_id = _NOBODY_ASKS + 1
        self._asked: dict[int, dict[int, asyncio.Future[memoryview]]] = {}
        self._handling: dict[PeerConnection, set[asyncio.Task[None]]] = {}

    def register(self, kind: int, handler: Handler) -> None:
        """Must be called before the transport starts: a call that came earlier would be told that it is unknown."""
        invariant(kind not in self._handlers and 0 <= kind < 2**16, f"calls of kind {kind} have a handler")
        self._handlers[kind] = handler

    async def call(self, peer: int, kind: int, payload: bytes, timeout: float) -> memoryview:
        """Raises PeerUnavailable, CallTimedOut or CallRefused."""
        invariant(len(payload) <= PAYLOAD_BYTES_MAX, f"a call of {len(payload)} bytes")
        under_way = self._asked.setdefault(peer, {})
        if len(under_way) >= CALLS_UNDER_WAY_MAX:
            raise PeerUnavailable(f"{len(under_way)} calls to node {peer} are under way", may_have_arrived=False)
        number = self._next_id
        self._next_id += 1
        if not self._send(peer, encode_frame(FrameKind.REQUEST, _REQUEST.pack(number, kind) + payload)):
            raise PeerUnavailable(f"no connection to node {peer}", may_have_arrived=False)
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        under_way[number] = answer
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise CallTimedOut(f"node {peer} did not answer within {timeout:g} s") from None
        finally:
            under_way.pop(number, None)

    # ------------------------------------------------------------------------------------------- the transport's side

    def answered(self, peer: int, content: Buffer) -> None:
        """Raises BadMessage."""
        if len(content) < _RESPONSE.size:
            raise BadMessage("an answer without a number")
        number, status = _RESPONSE.unpack_from(content)
        answer = self._asked.get(peer, {}).get(number)
        if answer is None or answer.done():
            return  # it came too late
        payload = memoryview(content)[_RESPONSE.size :]
        if status == Status.OK:
            answer.set_result(payload)
        elif status == Status.OVERLOADED:
            answer.set_exception(PeerUnavailable(f"node {peer} has too much to do", may_have_arrived=False))
        else:
            answer.set_exception(CallRefused(bytes(payload).decode(errors="replace")))

    def lost(self, peer: int) -> None:
        """Fails all calls under way to the peer: the connection is gone."""
        for answer in self._asked.pop(peer, {}).values():
            if not answer.done():
                answer.set_exception(PeerUnavailable(f"the connection to node {peer} broke", may_have_arrived=True))

    def asked(self, connection: PeerConnection, content: Buffer) -> None:
        """Raises BadMessage."""
        if len(content) < _REQUEST.size:
            raise BadMessage("a request without a number")
        number, kind = _REQUEST.unpack_from(content)
        if kind == _PING_KIND:
            connection.pinged()
            _answer(connection, number, Status.OK, [])
            return
        handler = self._handlers.get(kind)
        under_way = self._handling.setdefault(connection, set())
        if handler is None:
            _answer(connection, number, Status.UNKNOWN_KIND, [f"calls of kind {kind} are unknown".encode()])
        elif len(under_way) >= CALLS_UNDER_WAY_MAX:
            _answer(connection, number, Status.OVERLOADED, [])
        else:
            work = _handle(connection, number, handler, content[_REQUEST.size :])
            task = asyncio.get_running_loop().create_task(work, name=f"call of kind {kind} from node {connection.peer}")
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    def forget(self, connection: PeerConnection) -> None:
        """Gives up the answers for this connection: nobody waits for them any more."""
        for task in self._handling.pop(connection, ()):
            task.cancel()


async def _handle(connection: PeerConnection, number: int, handler: Handler, payload: Buffer) -> None:
    try:
        answer = await handler(connection.peer, payload)
        size = sum(map(len, answer))
        invariant(size <= ANSWER_BYTES_MAX, f"an answer of {size} bytes")
    except CallRefused as error:
        _answer(connection, number, Status.REFUSED, [str(error).encode()])
    except Exception as error:
        told = "call from node %d failed: %s; the caller gets an error"
        logger.error(told, connection.peer, reason_of(error), exc_info=unexpected(error))
        _answer(connection, number, Status.REFUSED, [b"it failed there; its log says why"])
    else:
        _answer(connection, number, Status.OK, answer)


def _answer(connection: PeerConnection, number: int, status: Status, pieces: Sequence[Buffer]) -> None:
    if connection.unsent_bytes > ANSWERS_UNSENT_BYTES_MAX:
        connection.close("it does not read its answers", logging.WARNING)
    else:
        # In pieces: an answer may hold megabytes of records, which need not be copied once more.
        size = sum(map(len, pieces))
        head = frame_head(FrameKind.RESPONSE, _RESPONSE.size + size) + _RESPONSE.pack(number, status)
        connection.send([head, *pieces])


class TypedCall(Generic[Request, Answer]):
    """A kind of call with the structs that travel: declared once, used by those who ask and those who answer."""

    def __init__(self, kind: int, request: type[Request], answer: type[Answer]) -> None:
        self.kind: Final = kind
        self._request = msgspec.msgpack.Decoder(request)
        self._answer = msgspec.msgpack.Decoder(answer)

    def pack(self, answer: Answer) -> Sequence[Buffer]:
        return [_encoder.encode(answer)]

    def unpack(self, payload: memoryview) -> Answer:
        """Raises msgspec.DecodeError."""
        return self._answer.decode(payload)

    async def ask(self, calls: PeerCalls, peer: int, request: Request, timeout: float) -> Answer:
        """Raises PeerUnavailable, CallTimedOut or CallRefused."""
        payload = await calls.call(peer, self.kind, _encoder.encode(request), timeout)
        try:
            return self.unpack(payload)
        except msgspec.DecodeError as error:
            raise CallRefused(f"the answer of node {peer} cannot be read: {error}") from error

    def serve(self, calls: PeerCalls, handler: Callable[[int, Request], Awaitable[Answer]]) -> None:
        async def handle(peer: int, payload: Buffer) -> Sequence[Buffer]:
            try:
                request = self._request.decode(payload)
            except msgspec.DecodeError as error:
                raise CallRefused(f"the request cannot be read: {error}") from error
            return self.pack(await handler(peer, request))

        calls.register(self.kind, handle)


_encoder: Final = msgspec.msgpack.Encoder()
