"""From a request frame to its handler and back to a response frame.

What cannot be understood ends the connection with one log line; what is understood but not spoken here is answered
with UNSUPPORTED_VERSION. Counts and, at debug level, logs every request.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chronik.api.routing.handlers import HANDLERS
from chronik.api.routing.held_answers import HeldAnswers
from chronik.api.routing.metering import ApiMeter, error_names, errors_in, holds_more_than, is_array_of_structs
from chronik.api.routing.throttling import limited
from chronik.api.shared.admission import (
    CONFIRM_SECONDS,
    CONFIRMED_READS,
    FENCED,
    OF_THE_IMAGE,
    UNCONFIRMED,
    wait_for_brokers,
)
from chronik.api.shared.context import Context, Services
from chronik.clock import SystemClock
from chronik.errors import StorageFailed, reason_of, unexpected
from chronik.exchange import Disconnect, Hurry, Peer, Reply
from chronik.exchange import Response as ResponseFrame
from chronik.limits import (
    DECODED_AT_ONCE_BYTES_MAX,
    DECODED_BEFORE_SLOT_BYTES_MAX,
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
    encode_element,
    encode_response,
)
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.message_types import REQUESTS
from chronik.protocol.schema import Request, Response, Struct
from chronik.scheduler import Steps, TooMuchToExamine, offloaded, run_in_slices, timed, wait_for_turn, working_for
from chronik.security.quotas.limiter import Limiter

if TYPE_CHECKING:
    from chronik.protocol.permissions import Operation

logger = logging.getLogger("chronik.api")


ENCODED_AT_ONCE_ELEMENTS_MAX: Final = 1_000
"""Elements of a response that is encoded in one go, if it was not resolved at once: a millisecond's work."""

READS_IN_STEPS: Final = frozenset(
    api.key
    for api in APIS.values()
    if api.module
    in (
        *("alter_replica_log_dirs", "describe_acls", "describe_configs", "describe_groups", "describe_log_dirs"),
        *("describe_producers", "describe_topic_partitions", "describe_transactions", "find_coordinator"),
        *("describe_user_scram_credentials", "list_groups", "list_offsets", "list_partition_reassignments"),
        *("list_transactions", "metadata", "offset_fetch", "offset_for_leader_epoch"),
    )
)
"""APIs whose handlers work in steps, and so need a slot in any case if the request names many things."""

Interceptor = Callable[[str], Awaitable[ErrorCode | None] | None]
"""May hold a request of the named API back, and have it answered with an error. For tests of clients."""


class _Call(NamedTuple):
    """A request on its way through the router."""

    header: RequestHeader
    request: Request
    peer: Peer
    came: float
    """When it was dispatched."""


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

    def dispatch(self, frame: bytearray, peer: Peer) -> Reply[Any]:
        """Handle one request frame. Raises Disconnect."""
        view = memoryview(frame)
        came = time.perf_counter()
        limits = self.limiter.is_on
        try:
            header, position = decode_request_header(view)
            if len(frame) > DECODED_BEFORE_SLOT_BYTES_MAX and _waits_for_slot(header.api_key, len(frame)):
                return self._large(header, view, position, peer, came)
            request = decode_request_body(header, view, position)
        except UnsupportedVersion as error:
            return Reply.of_frame(self._unsupported(error, peer))
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
        call = _Call(header, request, peer, came)
        if self._interceptor is not None:
            held = self._interceptor(APIS[header.api_key].name)
            if held is not None:
                return self._start(call, Reply.of_coroutine(self._intercepted(held, call, context)))
        try:
            reply = self._handle_limited(call, context) if limits else self._handle(call, context)
        except Disconnect:
            raise
        except Exception as error:
            reply = Reply()
            reply.fail(error)
        if reply.is_resolved:
            began = time.perf_counter() if limits else 0.0
            self._finish(call, reply, is_late=False)
            if context.usage is not None:
                context.usage.took(time.perf_counter() - began, waits=False)
            if reply.is_ready and reply.error is not None:
                raise reply.error
            return reply
        reply.hurry = hurry
        return self._start(call, reply)

    def _start(self, call: _Call, reply: Reply[Any]) -> Reply[Any]:
        """Have the reply encoded when it is resolved, and start the work that resolves it."""
        peer, scheduler = call.peer, self._services.scheduler
        if reply.steps is not None:
            steps, reply.steps = reply.steps, None
            cancel = scheduler.run_steps(
                peer.account, self._encoded_steps(call, reply, steps), partial(self._finish_steps, call, reply)
            )
            if not reply.is_ready and reply.on_cancel is None:
                reply.on_cancel = cancel
        elif reply.coroutine is not None:
            coroutine, reply.coroutine = reply.coroutine, None
            charge = partial(scheduler.charge, peer.account)
            with working_for(scheduler, peer.account):
                task = asyncio.get_running_loop().create_task(_resolve(reply, coroutine, charge))
            reply.on_cancel = partial(_cancel, task, coroutine)
            reply.on_resolved = partial(self._finish_later, call)
        else:
            reply.on_resolved = partial(self._finish_later, call)
        return reply

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

    def _large(self, header: RequestHeader, view: memoryview, position: int, peer: Peer, came: float) -> Reply[Any]:
        """Decode a large request when there is a slot for it, then handle it."""
        if len(view) > PLAIN_REQUEST_BYTES_MAX:
            raise Disconnect(f"{APIS[header.api_key].name} in {len(view)} bytes (up to {PLAIN_REQUEST_BYTES_MAX})")
        hurry = Hurry(self._is_unsettled)
        context = Context(header.api_version, header.client_id or "", peer, hurry, api_key=header.api_key)
        if self.limiter.is_on:
            context = self._limited(header, context, len(view), came)

        reply: Reply[Any] = Reply()
        reply.hurry = hurry
        scheduler = self._services.scheduler

        async def decode_and_handle() -> Response | tuple[ResponseFrame, list[int]] | None:
            # Decoded, a request takes several times its bytes: few are decoded at the same time.
            async with scheduler.slot(peer.account):
                try:
                    if len(view) > DECODED_AT_ONCE_BYTES_MAX:
                        request = await offloaded(lambda: decode_request_body(header, view, position))
                    else:
                        request = decode_request_body(header, view, position)
                except MalformedMessage as error:
                    raise Disconnect(str(error)) from error
                self.meters[header.api_key].requests += 1
                self.meters[header.api_key].received_bytes += len(view)
                if logger.isEnabledFor(logging.DEBUG):
                    _log_arrival(header, peer)
                call = _Call(header, request, peer, came)
                try:
                    handling = self._handle_limited(call, context)
                    waits_for_clients = handling.steps is None and header.api_key not in CONFIRMED_READS
                    if handling.is_resolved or not waits_for_clients:
                        return await finished(call, handling)
                except (Disconnect, StorageFailed, StoreClosed):
                    raise
                except Exception as error:
                    return self._failed(header, request, peer, error)
            # Without the slot: a fetch may wait for minutes, and a JoinGroup for requests that need a slot.
            try:
                return await finished(call, handling)
            except (Disconnect, StorageFailed, StoreClosed):
                raise
            except Exception as error:
                return self._failed(header, request, peer, error)

        async def finished(call: _Call, handling: Reply[Any]) -> Response | tuple[ResponseFrame, list[int]] | None:
            response = await handling
            if response is not None and holds_more_than(response, ENCODED_AT_ONCE_ELEMENTS_MAX):
                return await run_in_slices(self._encoded_in_steps(call, response))
            return response

        async def answer() -> None:
            call = _Call(header, REQUESTS[header.api_key](), peer, came)
            try:
                value = await timed(decode_and_handle(), partial(scheduler.charge, peer.account))
            except Exception as error:
                self._finish_steps(call, reply, None, error)
            else:
                self._finish_steps(call, reply, value, None)

        answering = answer()
        with working_for(scheduler, peer.account):
            task = asyncio.get_running_loop().create_task(answering)
        reply.on_cancel = partial(_cancel, task, answering)
        return reply

    def _is_unsettled(self) -> bool:
        """Whether a broker has gone: clients that look for new leaders on connections where fetches wait must not
        wait for those. Otherwise a fetch has all the time it asked for, as in Kafka: some clients lean on it."""
        return any(broker.fenced for broker in self._services.image.brokers.values())

    def _handle_limited(self, call: _Call, context: Context) -> Reply[Any]:
        if context.usage is None:
            return self._handle(call, context)
        return limited(lambda: self._handle(call, context), context.usage, context.peer)

    def _handle(self, call: _Call, context: Context) -> Reply[Any]:
        key, services = call.header.api_key, self._services
        if key in self._guarded and not self._is_let_in(context):
            return Reply.of(HANDLERS[key].failure(call.request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        if key in CONFIRMED_READS and services.store.is_shared and not (key in FENCED and services.is_fenced()):
            return Reply.of_coroutine(self._when_confirmed(call, context))
        return self._handle_now(call, context)

    def _is_let_in(self, context: Context) -> bool:
        from chronik.api.shared.rights import may_with_cluster

        return may_with_cluster(self._services, context, self._guarded[context.api_key])

    def _handle_now(self, call: _Call, context: Context) -> Reply[Any]:
        key, services = call.header.api_key, self._services
        handler = HANDLERS[key]
        if key in FENCED and services.is_fenced():
            return Reply.of(handler.failure(call.request, FENCED[key]))
        return handler.handle(services, call.request, context)

    async def _when_confirmed(self, call: _Call, context: Context) -> Response | None:
        services, key = self._services, call.header.api_key
        if key in OF_THE_IMAGE:
            await wait_for_brokers(services)
        try:
            await services.store.read_barrier(CONFIRM_SECONDS)
        except KafkaError as error:
            code = UNCONFIRMED.get(key, error.code if services.config.read_quorum else None)
            if code is not None:
                return HANDLERS[key].failure(call.request, code)
            context = context._replace(may_be_behind=True)
        return await self._handle_now(call, context)

    async def _intercepted(self, held: Awaitable[ErrorCode | None], call: _Call, context: Context) -> Response | None:
        code = await held
        if code is not None:
            return HANDLERS[call.header.api_key].failure(call.request, code)
        return await self._handle_limited(call, context)

    # From a response to a frame

    def _finish_later(self, call: _Call, reply: Reply[Any]) -> None:
        began = time.perf_counter()
        self._finish(call, reply, is_late=True)
        self._services.scheduler.charge(call.peer.account, time.perf_counter() - began)

    def _finish(self, call: _Call, reply: Reply[Any], *, is_late: bool) -> None:
        """Encode a resolved reply: in steps if it is late and large."""
        header, response = call.header, reply.response
        meter = self.meters[header.api_key]
        try:
            if reply.error is not None:
                if isinstance(reply.error, Disconnect):
                    raise reply.error
                frame = self._broken(header, call.request, call.peer, reply.error)
                reply.error = None
                meter.answered_later(frame, call.came)
            elif is_late and response is not None and holds_more_than(response, ENCODED_AT_ONCE_ELEMENTS_MAX):
                steps, done = self._encoded_in_steps(call, response), partial(self._finish_encoded, call, reply)
                # Admitted already: otherwise all responses would be built before the first is encoded.
                cancel = self._services.scheduler.run_steps(call.peer.account, steps, done, shares_slot=True)
                if not reply.is_ready and reply.on_cancel is None:  # it may be held back for lack of memory
                    reply.on_cancel = cancel
                return
            else:
                frame = self._encoded(header, response, call.peer, call.came)
                meter.answered(response, frame, call.came, meter.later if is_late else meter.at_once)
            self._give(header, frame, reply)
        except Exception as error:  # whatever it is, the client must not be left waiting
            reply.disconnect(error)

    def _encoded_steps(self, call: _Call, reply: Reply[Any], steps: Steps[Any]) -> Steps[Any]:
        """Build the response, and encode it if it is large."""
        response = reply.filtered((yield from steps))
        if response is not None and holds_more_than(response, ENCODED_AT_ONCE_ELEMENTS_MAX):
            return (yield from self._encoded_in_steps(call, response))
        return response

    def _finish_steps(self, call: _Call, reply: Reply[Any], value: Any, error: BaseException | None) -> None:
        if reply.is_cancelled:
            return
        if isinstance(value, tuple):
            self._finish_encoded(call, reply, value, None)
            return
        reply.is_resolved, reply.response, reply.error = True, value, error
        self._finish(call, reply, is_late=reply.on_cancel is not None)  # it is set when the first slice is over

    def _encoded_in_steps(self, call: _Call, response: Response) -> Steps[tuple[ResponseFrame, list[int]]]:
        """Encode the elements of the response's arrays one by one, large ones in a thread, and then the whole."""
        version, kind = call.header.api_version, type(response)
        errors: list[int] = []
        response = copy.copy(response)  # other requests may be given the same object
        for field in kind.__schema__.fields:
            elements = getattr(response, field.name)
            if not elements or not is_array_of_structs(field) or field.tag is not None:
                continue
            encoded: list[Struct | bytes] = []
            for element in elements if field.versions.covers(version) else ():
                yield None
                if not isinstance(element, bytes):
                    errors += errors_in(element)
                    encode = partial(encode_element, kind, element, version)
                    element = (yield encode) if holds_more_than(element, ENCODED_AT_ONCE_ELEMENTS_MAX) else encode()
                encoded.append(element)
            setattr(response, field.name, encoded)
        return self._encoded(call.header, response, call.peer, call.came), errors + errors_in(response)

    def _finish_encoded(self, call: _Call, reply: Reply[Any], value: Any, error: BaseException | None) -> None:
        if reply.is_cancelled:
            return
        if error is not None:
            reply.disconnect(Disconnect(str(error)) if isinstance(error, TooMuchToExamine) else error)
            return
        frame, errors = value
        meter = self.meters[call.header.api_key]
        meter.count_errors(errors)
        meter.answered_later(frame, call.came)
        self._give(call.header, frame, reply)

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

    def _give(self, header: RequestHeader, frame: ResponseFrame, reply: Reply[Any]) -> None:
        """Make the reply ready, or hold it back while there is no memory. A fetch has checked itself how much it may
        hold."""
        if header.api_key != FETCH_KEY and self._held.must_wait(frame):
            self._held.hold(frame, reply)
        else:
            reply.ready(frame)

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
        if isinstance(error, TooMuchToExamine):
            error = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
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


def _waits_for_slot(api_key: int, size: int) -> bool:
    """Return whether a request of this size is decoded only when it has a slot."""
    if size > DECODED_AT_ONCE_BYTES_MAX:
        return api_key != PRODUCE_KEY
    return api_key in READS_IN_STEPS


def _who(header: RequestHeader, peer: Peer) -> str:
    return f"connection {peer.number} ({header.client_id}, {peer.host}:{peer.port})"


def _log_arrival(header: RequestHeader, peer: Peer) -> None:
    """Logs a request before it is handled: of one that hangs there is no other line."""
    api = APIS[header.api_key]
    logger.debug("%s: %s v%d #%d", _who(header, peer), api.name, header.api_version, header.correlation_id)


async def _resolve(reply: Reply[Any], coroutine: Coroutine[Any, Any, Any], charge: Callable[[float], None]) -> None:
    try:
        await wait_for_turn()
        response = await timed(coroutine, charge)
    except Exception as error:
        reply.fail(error)
    else:
        reply.resolve(response)


def _cancel(task: asyncio.Task[None], coroutine: Coroutine[Any, Any, Any]) -> None:
    """Cancel a task and the handler that it may not have started yet."""
    task.cancel()
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
