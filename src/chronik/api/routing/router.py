"""From a request frame to its handler and back to a response frame.

What cannot be understood ends the connection with one log line; what is understood but not spoken here is answered
with UNSUPPORTED_VERSION. Counts and, at debug level, logs every request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from chronik.api.routing.handlers import HANDLERS, Answer, Outcome
from chronik.api.routing.held_answers import HeldAnswers
from chronik.api.routing.metering import ApiMeter, error_names, errors_in
from chronik.api.routing.throttling import limited
from chronik.api.shared.admission import (
    CONFIRM_SECONDS,
    CONFIRMED_READS,
    FENCED,
    OF_THE_IMAGE,
    UNCONFIRMED,
    wait_for_brokers,
)
from chronik.api.shared.context import Context, Pipelined, Prompt, Services
from chronik.api.shared.long_answers import Long
from chronik.clock import SystemClock
from chronik.errors import StorageFailed, reason_of, unexpected
from chronik.exchange import Disconnect, Hurry, Peer, Pending
from chronik.exchange import Response as ResponseFrame
from chronik.limits import (
    DECODED_AT_ONCE_BYTES_MAX,
    PLAIN_REQUEST_BYTES_MAX,
)
from chronik.metadata.stores.store import StoreClosed
from chronik.protocol.apis import API_VERSIONS_KEY, APIS, FETCH_KEY, PRODUCE_KEY
from chronik.protocol.codec import (
    MalformedMessage,
    RequestHeader,
    UnencodableMessage,
    UnknownApi,
    UnsupportedVersion,
    decode_request_body,
    decode_request_header,
    encode_response,
)
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.message_types import REQUESTS
from chronik.protocol.schema import Request, Response
from chronik.security.quotas.limiter import Limiter

if TYPE_CHECKING:
    from chronik.protocol.permissions import Operation

logger = logging.getLogger("chronik.api")


Interceptor = Callable[[str], Awaitable[ErrorCode | None] | None]
"""May hold a request of the named API back, and have it answered with an error. For tests of clients."""


class Router:
    def __init__(
        self,
        services: Services,
        on_fatal: Callable[[BaseException], None],
        interceptor: Interceptor | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self._services = services
        self._on_fatal = on_fatal
        self._interceptor = interceptor
        self._held = HeldAnswers(services.outbox)
        self.limiter = limiter or Limiter(SystemClock(), dict)
        self._guarded = _guarded(services)
        self.meters = {api.key: ApiMeter(api.key) for api in APIS.values()}

    def dispatch(self, frame: bytearray, peer: Peer) -> ResponseFrame | Pending:
        view = memoryview(frame)
        came = time.perf_counter()
        limits = self.limiter.is_on
        try:
            header, position = decode_request_header(view)
            if len(frame) > DECODED_AT_ONCE_BYTES_MAX and header.api_key != PRODUCE_KEY:
                return self._large(header, view, position, peer, came)
            request = decode_request_body(header, view, position)
        except UnsupportedVersion as error:
            return self._unsupported(error, peer)
        except (MalformedMessage, UnknownApi) as error:
            raise Disconnect(str(error)) from error
        meter = self.meters[header.api_key]
        meter.requests += 1
        meter.received_bytes += len(frame)
        if logger.isEnabledFor(logging.DEBUG):
            _log_arrival(header, peer)
        hurry = Hurry(self._is_unsettled)
        context = Context(header.api_version, header.client_id or "", peer, hurry, api_key=header.api_key)
        if limits:
            context = self._limited(header, context, len(frame), came)
        if self._interceptor is not None:
            held = self._interceptor(APIS[header.api_key].name)
            if held is not None:
                return self._pending(header, request, peer, self._intercepted(held, header, request, context), came)
        try:
            if limits:
                outcome = self._handle_limited(header, request, context)
            else:
                outcome = self._handle(header, request, context)
        except Disconnect:
            raise
        except Exception as error:
            answer = self._broken(header, request, peer, error)
            meter.answered_later(answer, came)
            return self._now_or_when_read(header, answer)
        if isinstance(outcome, Response) or outcome is None:
            began = time.perf_counter() if limits else 0.0
            answer = self._encoded(header, outcome, peer, came)
            if context.usage is not None:
                context.usage.took(time.perf_counter() - began, waits=False)
            meter.answered(outcome, answer, came, meter.at_once)
            return self._now_or_when_read(header, answer)
        pending = self._pending(header, request, peer, outcome, came)
        pending.hurry = hurry
        return pending

    def _limited(self, header: RequestHeader, context: Context, size: int, came: float) -> Context:
        """Begins to count what the request uses of its client's quotas, if it has any. Who has not said who it is has
        none: it could use up what others have, under any client id that it likes."""
        if not context.peer.is_let_in:
            return context
        usage = self.limiter.usage(context.peer.principal.name, context.client_id)
        if usage is None:
            return context
        usage.began = came
        if header.api_key == PRODUCE_KEY:
            usage.produced(size)
        return context._replace(usage=usage)

    def _large(self, header: RequestHeader, view: memoryview, position: int, peer: Peer, came: float) -> Pending:
        if len(view) > PLAIN_REQUEST_BYTES_MAX:
            raise Disconnect(f"{APIS[header.api_key].name} in {len(view)} bytes (up to {PLAIN_REQUEST_BYTES_MAX})")
        hurry = Hurry(self._is_unsettled)
        context = Context(header.api_version, header.client_id or "", peer, hurry, api_key=header.api_key)
        if self.limiter.is_on:
            context = self._limited(header, context, len(view), came)

        async def decode_and_answer() -> Answer:
            try:
                request = await asyncio.to_thread(decode_request_body, header, view, position)
            except MalformedMessage as error:
                raise Disconnect(str(error)) from error
            self.meters[header.api_key].requests += 1
            self.meters[header.api_key].received_bytes += len(view)
            if logger.isEnabledFor(logging.DEBUG):
                _log_arrival(header, peer)
            try:
                response = await _settled(self._handle_limited(header, request, context))
            except (Disconnect, StorageFailed, StoreClosed):
                raise
            except Exception as error:
                response = self._failed(header, request, peer, error)
            return Long(response) if isinstance(response, Response) else response

        pending = self._pending(header, REQUESTS[header.api_key](), peer, decode_and_answer(), came)
        pending.hurry = hurry
        return pending

    def _is_unsettled(self) -> bool:
        """Whether a broker has gone: clients that look for new leaders on connections where fetches wait must not
        wait for those. Otherwise a fetch has all the time it asked for, as in Kafka: some clients lean on it."""
        return any(broker.fenced for broker in self._services.image.brokers.values())

    def _handle_limited(self, header: RequestHeader, request: Request, context: Context) -> Outcome:
        if context.usage is None:
            return self._handle(header, request, context)
        return limited(lambda: self._handle(header, request, context), context.usage, context.peer)

    def _handle(self, header: RequestHeader, request: Request, context: Context) -> Outcome:
        key, services = header.api_key, self._services
        if key in self._guarded and not self._is_let_in(context):
            return HANDLERS[key].failure(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if key in CONFIRMED_READS and services.store.is_shared and not (key in FENCED and services.is_fenced()):
            return self._when_confirmed(header, request, context)
        return self._handle_now(header, request, context)

    def _is_let_in(self, context: Context) -> bool:
        from chronik.api.shared.rights import may_with_cluster

        return may_with_cluster(self._services, context, self._guarded[context.api_key])

    def _handle_now(self, header: RequestHeader, request: Request, context: Context) -> Outcome:
        key, services = header.api_key, self._services
        handler = HANDLERS[key]
        if key in FENCED and services.is_fenced():
            return handler.failure(request, FENCED[key])
        return handler.handle(services, request, context)

    async def _when_confirmed(self, header: RequestHeader, request: Request, context: Context) -> Answer:
        services = self._services
        if header.api_key in OF_THE_IMAGE:
            await wait_for_brokers(services)
        try:
            await services.store.read_barrier(CONFIRM_SECONDS)
        except KafkaError as error:
            code = UNCONFIRMED.get(header.api_key, error.code if services.config.read_quorum else None)
            if code is not None:
                return HANDLERS[header.api_key].failure(request, code)
            context = context._replace(may_be_behind=True)
        return await _settled(self._handle_now(header, request, context))

    def _pending(
        self,
        header: RequestHeader,
        request: Request,
        peer: Peer,
        outcome: Pipelined | Awaitable[Answer],
        came: float,
    ) -> Pending:
        source: asyncio.Future[Any]
        if isinstance(outcome, Pipelined):
            pipelined, source = True, outcome.response
        else:
            pipelined, source = False, asyncio.ensure_future(outcome)
        answer: asyncio.Future[ResponseFrame] = asyncio.get_running_loop().create_future()

        def answered(_: object) -> None:
            if answer.done():
                return
            if source.cancelled():
                answer.cancel()
                return
            error = source.exception()
            try:
                if isinstance(error, Disconnect):
                    raise error
                meter = self.meters[header.api_key]
                if error is not None:
                    frame = self._broken(header, request, peer, error)
                    meter.answered_later(frame, came)
                    self._give(header, frame, answer)
                    return
                found: Answer = source.result()
                if isinstance(found, Long):
                    self._encode_aside(header, found.response, peer, came, answer)
                    return
                frame = self._encoded(header, found, peer, came)
                meter.answered(found, frame, came, meter.later)
                self._give(header, frame, answer)
            except Exception as failed:  # whatever it is, the client must not be left waiting
                answer.set_exception(failed)

        def abandoned(_: object) -> None:
            if answer.cancelled():
                source.cancel()

        if isinstance(source, Prompt):
            source.listener = answered
        else:
            source.add_done_callback(answered)
        answer.add_done_callback(abandoned)
        return Pending(answer, pipelined)

    def _encode_aside(
        self,
        header: RequestHeader,
        response: Response,
        peer: Peer,
        came: float,
        answer: asyncio.Future[ResponseFrame],
    ) -> None:
        def encode() -> tuple[ResponseFrame, list[int]]:
            return self._encoded(header, response, peer, came), errors_in(response)

        def encoded(done: asyncio.Future[tuple[ResponseFrame, list[int]]]) -> None:
            error = done.exception()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                frame, errors = done.result()
                meter = self.meters[header.api_key]
                meter.count_errors(errors)
                meter.answered_later(frame, came)
                self._give(header, frame, answer)

        asyncio.get_running_loop().run_in_executor(None, encode).add_done_callback(encoded)

    async def _intercepted(
        self, held: Awaitable[ErrorCode | None], header: RequestHeader, request: Request, context: Context
    ) -> Answer:
        code = await held
        handler = HANDLERS[header.api_key]
        if code is not None:
            return handler.failure(request, code)
        return await _settled(self._handle_limited(header, request, context))

    def _encoded(self, header: RequestHeader, response: Response | None, peer: Peer, came: float) -> ResponseFrame:
        if logger.isEnabledFor(logging.DEBUG):
            self._log(header, response, peer, came)
        return self._frame(header, response)

    def _frame(self, header: RequestHeader, response: Response | None) -> ResponseFrame:
        if response is None:
            return None
        try:
            frame = encode_response(header.correlation_id, header.api_version, response)
        except UnencodableMessage as error:
            logger.error("%s v%d cannot be answered", APIS[header.api_key].name, header.api_version, exc_info=error)
            raise Disconnect(f"its answer cannot be sent: {error}") from error
        return frame

    def _must_wait(self, header: RequestHeader, frame: ResponseFrame) -> bool:
        """A fetch has checked itself how much it may hold."""
        return header.api_key != FETCH_KEY and self._held.must_wait(frame)

    def _now_or_when_read(self, header: RequestHeader, frame: ResponseFrame) -> ResponseFrame | Pending:
        if not self._must_wait(header, frame):
            return frame
        answer: asyncio.Future[ResponseFrame] = asyncio.get_running_loop().create_future()
        self._held.hold(frame, answer)
        return Pending(answer)

    def _give(self, header: RequestHeader, frame: ResponseFrame, answer: asyncio.Future[ResponseFrame]) -> None:
        if self._must_wait(header, frame):
            self._held.hold(frame, answer)
        else:
            answer.set_result(frame)

    def _broken(self, header: RequestHeader, request: Request, peer: Peer, error: BaseException) -> ResponseFrame:
        """Raises Disconnect when the node stops: what became of the request is not known, so nothing is said."""
        if isinstance(error, StorageFailed):
            self._on_fatal(error)
        if isinstance(error, StorageFailed | StoreClosed):
            raise Disconnect("the node stops") from error
        failed = self._failed(header, request, peer, error)
        self.meters[header.api_key].count_errors(errors_in(failed))
        return self._frame(header, failed)

    def _failed(self, header: RequestHeader, request: Request, peer: Peer, error: BaseException) -> Response:
        told = APIS[header.api_key].name, header.api_version, _who(header, peer)
        if isinstance(error, KafkaError):  # an answer as good as any other: it holds for the whole of the request
            logger.info("%s v%d of %s is refused: %s", *told, error)
            code = error.code
        else:
            self.meters[header.api_key].failures += 1
            logger.error("%s v%d of %s failed: %s", *told, reason_of(error), exc_info=unexpected(error))
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return HANDLERS[header.api_key].failure(request, code)

    def _unsupported(self, error: UnsupportedVersion, peer: Peer) -> ResponseFrame:
        """Answers ApiVersions in version 0, which every client can read, and others as the newest version has it."""
        api = APIS[error.api_key]
        logger.debug("connection %d: %s v%d is not spoken here", peer.number, api.name, error.api_version)
        response = HANDLERS[error.api_key].failure(REQUESTS[api.key](), ErrorCode.UNSUPPORTED_VERSION)
        self.meters[api.key].count_errors([ErrorCode.UNSUPPORTED_VERSION])
        version = 0 if error.api_key == API_VERSIONS_KEY else api.max_version
        return encode_response(error.correlation_id, version, response)

    def _log(self, header: RequestHeader, response: Response | None, peer: Peer, came: float) -> None:
        logger.debug(
            "connection %d (%s): %s v%d #%d in %.2f ms: %s",
            peer.number,
            header.client_id,
            APIS[header.api_key].name,
            header.api_version,
            header.correlation_id,
            (time.perf_counter() - came) * 1000,
            ", ".join(error_names(response)) or "ok",
        )


def _guarded(services: Services) -> Mapping[int, Operation]:
    """Returns the rights on the cluster that are asked for before a request comes to its handler."""
    if services.authorizer is None:
        return {}
    from chronik.api.shared.rights import rights_on_cluster  # a node without an authorizer starts without

    return rights_on_cluster()


def _who(header: RequestHeader, peer: Peer) -> str:
    return f"connection {peer.number} ({header.client_id}, {peer.host}:{peer.port})"


def _log_arrival(header: RequestHeader, peer: Peer) -> None:
    """Logs a request before it is handled: of one that hangs there is no other line."""
    api = APIS[header.api_key]
    logger.debug("%s: %s v%d #%d", _who(header, peer), api.name, header.api_version, header.correlation_id)


async def _settled(outcome: Outcome) -> Answer:
    if isinstance(outcome, Pipelined):
        return await outcome.response
    if isinstance(outcome, Response) or outcome is None:
        return outcome
    return await outcome
