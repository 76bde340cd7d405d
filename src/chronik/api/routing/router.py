"""Request router: decodes a request frame, calls its API handler, and encodes the response frame.

A malformed request closes its connection with one log line. A request in an unsupported version is answered with
UNSUPPORTED_VERSION. The router counts every request and logs it at debug level.
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

from chronik.api.routing.deferred_responses import DeferredResponses
from chronik.api.routing.handlers import HANDLERS
from chronik.api.routing.metrics import (
    ApiMeter,
    find_error_codes,
    has_more_elements_than,
    is_array_of_structs,
    list_error_names,
)
from chronik.api.routing.throttling import handle_throttled
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.read_consistency import (
    CONFIRM_TIMEOUT_SECONDS,
    CONFIRMED_READS,
    FENCED_ERRORS,
    METADATA_READS,
    UNCONFIRMED_ERRORS,
    UNCONFIRMED_WHEN_FENCED,
    wait_for_brokers,
)
from chronik.clock import SystemClock
from chronik.errors import StorageError, exc_info_if_unexpected, find_root_cause
from chronik.limits import DECODED_BEFORE_SLOT_BYTES_MAX, DECODED_INLINE_BYTES_MAX, NON_PRODUCE_REQUEST_BYTES_MAX
from chronik.metadata.stores.store import StoreClosedError
from chronik.protocol.apis import API_VERSIONS_KEY, APIS, FETCH_KEY, PRODUCE_KEY
from chronik.protocol.codec import (
    REQUESTS,
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
from chronik.protocol.schema import Request, Response, Struct
from chronik.request_reply import ConnectedClient, Disconnect, EarlyCompletion, Reply
from chronik.request_reply import ResponseFrame as ResponseFrame
from chronik.scheduler import (
    ExaminationLimitExceeded,
    Steps,
    charge_tasks_to_account,
    measure_loop_time,
    run_in_slices,
    run_in_thread,
    yield_if_over_budget,
)
from chronik.security.quotas.limiter import QuotaLimiter

if TYPE_CHECKING:
    from chronik.protocol.permissions import AclOperation

logger = logging.getLogger("chronik.api")


ELEMENTS_PER_ITERATION_MAX: Final = 1_000
"""Maximum number of response elements that are encoded in one event-loop iteration, which takes about a millisecond."""

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
"""API keys of read requests that are handled in short steps.

They need a scheduler slot if the request contains many elements.
"""

Interceptor = Callable[[str], Awaitable[ErrorCode | None] | None]
"""A test hook that delays or fails the requests of an API.

It receives the API's name, and returns an error code or None.
"""


class _Call(NamedTuple):
    """A decoded request with its header, connection and arrival time."""

    header: RequestHeader
    request: Request
    peer: ConnectedClient
    received_at: float
    """Arrival time (`time.perf_counter`)."""


class Router:
    """The dispatcher of request frames to API handlers."""

    def __init__(
        self,
        services: Services,
        on_fatal: Callable[[BaseException], None],
        interceptor: Interceptor | None = None,
        limiter: QuotaLimiter | None = None,
    ) -> None:
        self._services = services
        self._on_fatal = on_fatal
        self._interceptor = interceptor
        self._deferred = DeferredResponses(services.outbox)
        self.limiter = limiter or QuotaLimiter(SystemClock(), dict)
        self._cluster_permissions = _cluster_permissions(services)
        self.meters = {api.key: ApiMeter(api.key) for api in APIS.values()}

    def dispatch(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        """Decode and handle one request frame.

        Raises:
            Disconnect: The request is malformed, or its connection must be closed for another reason.
        """
        view = memoryview(frame)
        received_at = time.perf_counter()
        limits = self.limiter.is_active
        try:
            header, position = decode_request_header(view)
            if len(frame) > DECODED_BEFORE_SLOT_BYTES_MAX and _needs_slot_to_decode(header.api_key, len(frame)):
                return self._dispatch_large(header, view, position, peer, received_at)
            request = decode_request_body(header, view, position)
        except UnsupportedVersion as error:
            return Reply.from_frame(self._build_unsupported_version_response(error, peer))
        except (MalformedMessage, UnknownApi) as error:
            raise Disconnect(str(error)) from error
        meter = self.meters[header.api_key]
        meter.requests += 1
        meter.received_bytes += len(frame)
        if logger.isEnabledFor(logging.DEBUG):
            _log_request(header, peer)
        completion = EarlyCompletion(self._has_fenced_broker)
        context = RequestContext(header.api_version, header.client_id or "", peer, completion, api_key=header.api_key)
        if limits:
            context = self._add_quota_usage(header, context, len(frame), received_at)
        call = _Call(header, request, peer, received_at)
        if self._interceptor is not None:
            held = self._interceptor(APIS[header.api_key].name)
            if held is not None:
                return self._start_reply_work(
                    call, Reply.from_coroutine(self._handle_after_interceptor(held, call, context))
                )
        try:
            reply = self._handle_throttled(call, context) if limits else self._authorize_and_handle(call, context)
        except Disconnect:
            raise
        except Exception as error:
            reply = Reply()
            reply.fail(error)
        if reply.is_resolved:
            began = time.perf_counter() if limits else 0.0
            self._encode_and_deliver_reply(call, reply, is_deferred=False)
            if context.usage is not None:
                context.usage.charge_request_time(time.perf_counter() - began, may_throttle=False)
            if reply.is_ready and reply.error is not None:
                raise reply.error
            return reply
        reply.early_completion = completion
        return self._start_reply_work(call, reply)

    def _start_reply_work(self, call: _Call, reply: Reply[Any]) -> Reply[Any]:
        """Start the asynchronous work of a request, and encode its response when the work is complete."""
        peer, scheduler = call.peer, self._services.scheduler
        if reply.steps is not None:
            steps, reply.steps = reply.steps, None
            cancel = scheduler.run_steps(
                peer.account,
                self._run_and_encode_steps(call, reply, steps),
                partial(self._deliver_step_result, call, reply),
            )
            if not reply.is_ready and reply.on_cancel is None:
                reply.on_cancel = cancel
        elif reply.coroutine is not None:
            coroutine, reply.coroutine = reply.coroutine, None
            charge = partial(scheduler.charge, peer.account)
            with charge_tasks_to_account(scheduler, peer.account):
                task = asyncio.get_running_loop().create_task(_resolve_reply(reply, coroutine, charge))
            reply.on_cancel = partial(_cancel_task, task, coroutine)
            reply.on_resolved = partial(self._encode_deferred_reply, call)
        else:
            reply.on_resolved = partial(self._encode_deferred_reply, call)
        return reply

    def _add_quota_usage(
        self, header: RequestHeader, context: RequestContext, size: int, received_at: float
    ) -> RequestContext:
        """Return the request context with a meter of the client's quota usage, if the client has quotas.

        Unauthenticated clients have no quotas: they could exhaust other clients' quotas under a false client id.
        """
        if not context.peer.is_authenticated:
            return context
        usage = self.limiter.usage(context.peer.principal.name, context.client_id)
        if usage is None:
            return context
        usage.started_at = received_at
        if header.api_key == PRODUCE_KEY:
            usage.charge_produce(size)
        return context._replace(usage=usage)

    def _dispatch_large(
        self, header: RequestHeader, view: memoryview, position: int, peer: ConnectedClient, received_at: float
    ) -> Reply[Any]:
        """Wait for a scheduler slot, then decode and handle a request with a large frame.

        Raises:
            Disconnect: The request exceeds the size limit.
        """
        if len(view) > NON_PRODUCE_REQUEST_BYTES_MAX:
            raise Disconnect(
                f"{APIS[header.api_key].name} request of {len(view)} bytes exceeds {NON_PRODUCE_REQUEST_BYTES_MAX} "
                "bytes"
            )
        completion = EarlyCompletion(self._has_fenced_broker)
        context = RequestContext(header.api_version, header.client_id or "", peer, completion, api_key=header.api_key)
        if self.limiter.is_active:
            context = self._add_quota_usage(header, context, len(view), received_at)

        reply: Reply[Any] = Reply()
        reply.early_completion = completion
        scheduler = self._services.scheduler

        async def decode_and_handle() -> Response | tuple[ResponseFrame, list[int]] | None:
            # A decoded request takes several times its encoded size, so few may be decoded at the same time.
            async with scheduler.slot(peer.account):
                try:
                    if len(view) > DECODED_INLINE_BYTES_MAX:
                        request = await run_in_thread(lambda: decode_request_body(header, view, position))
                    else:
                        request = decode_request_body(header, view, position)
                except MalformedMessage as error:
                    raise Disconnect(str(error)) from error
                self.meters[header.api_key].requests += 1
                self.meters[header.api_key].received_bytes += len(view)
                if logger.isEnabledFor(logging.DEBUG):
                    _log_request(header, peer)
                call = _Call(header, request, peer, received_at)
                try:
                    handling = self._handle_throttled(call, context)
                    waits_for_clients = handling.steps is None and header.api_key not in CONFIRMED_READS
                    if handling.is_resolved or not waits_for_clients:
                        return await encode_when_done(call, handling)
                except (Disconnect, StorageError, StoreClosedError):
                    raise
                except Exception as error:
                    return self._build_failure_response(header, request, peer, error)
            # Release the slot: a fetch may wait for minutes, and a JoinGroup for requests that need a slot.
            try:
                return await encode_when_done(call, handling)
            except (Disconnect, StorageError, StoreClosedError):
                raise
            except Exception as error:
                return self._build_failure_response(header, request, peer, error)

        async def encode_when_done(
            call: _Call, handling: Reply[Any]
        ) -> Response | tuple[ResponseFrame, list[int]] | None:
            response = await handling
            if response is not None and has_more_elements_than(response, ELEMENTS_PER_ITERATION_MAX):
                return await run_in_slices(self._encode_in_steps(call, response))
            return response

        async def respond() -> None:
            call = _Call(header, REQUESTS[header.api_key](), peer, received_at)
            try:
                value = await measure_loop_time(decode_and_handle(), partial(scheduler.charge, peer.account))
            except Exception as error:
                self._deliver_step_result(call, reply, None, error)
            else:
                self._deliver_step_result(call, reply, value, None)

        with charge_tasks_to_account(scheduler, peer.account):
            task = asyncio.get_running_loop().create_task(respond())
        reply.on_cancel = task.cancel  # type: ignore[assignment]
        return reply

    def _has_fenced_broker(self) -> bool:
        """Return whether any broker is fenced; if so, waiting fetches must not delay a client's later requests.

        Clients then look for new leaders on connections where fetches wait. Otherwise a fetch may use its full
        `max_wait_ms`, as in Kafka: some clients rely on it.
        """
        return any(broker.is_fenced for broker in self._services.image.brokers.values())

    def _handle_throttled(self, call: _Call, context: RequestContext) -> Reply[Any]:
        if context.usage is None:
            return self._authorize_and_handle(call, context)
        return handle_throttled(lambda: self._authorize_and_handle(call, context), context.usage, context.peer)

    def _authorize_and_handle(self, call: _Call, context: RequestContext) -> Reply[Any]:
        key, services = call.header.api_key, self._services
        if key in self._cluster_permissions and not self._is_authorized_on_cluster(context):
            return Reply.from_response(HANDLERS[key].failure(call.request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        is_exempt = key in UNCONFIRMED_WHEN_FENCED and services.is_fenced()
        if key in CONFIRMED_READS and services.store.is_shared and not is_exempt:
            return Reply.from_coroutine(self._handle_after_read_barrier(call, context))
        return self._handle_unless_fenced(call, context)

    def _is_authorized_on_cluster(self, context: RequestContext) -> bool:
        """Return whether the client has the cluster permission that the API requires."""
        from chronik.api.shared.authorization import is_authorized_on_cluster

        return is_authorized_on_cluster(self._services, context, self._cluster_permissions[context.api_key])

    def _handle_unless_fenced(self, call: _Call, context: RequestContext) -> Reply[Any]:
        key, services = call.header.api_key, self._services
        handler = HANDLERS[key]
        if key in FENCED_ERRORS and services.is_fenced():
            return Reply.from_response(handler.failure(call.request, FENCED_ERRORS[key]))
        return handler.handle(services, call.request, context)

    async def _handle_after_read_barrier(self, call: _Call, context: RequestContext) -> Response | None:
        """Handle a request after a majority has confirmed that the metadata image is current."""
        services, key = self._services, call.header.api_key
        if key in METADATA_READS:
            await wait_for_brokers(services)
        try:
            await services.store.read_barrier(CONFIRM_TIMEOUT_SECONDS)
        except KafkaError as error:
            code = UNCONFIRMED_ERRORS.get(key, error.code if services.config.read_quorum else None)
            if code is not None:
                return HANDLERS[key].failure(call.request, code)
            context = context._replace(may_be_stale=True)
        return await self._handle_unless_fenced(call, context)

    async def _handle_after_interceptor(
        self, held: Awaitable[ErrorCode | None], call: _Call, context: RequestContext
    ) -> Response | None:
        code = await held
        if code is not None:
            return HANDLERS[call.header.api_key].failure(call.request, code)
        return await self._handle_throttled(call, context)

    # Encoding of responses

    def _encode_deferred_reply(self, call: _Call, reply: Reply[Any]) -> None:
        began = time.perf_counter()
        self._encode_and_deliver_reply(call, reply, is_deferred=True)
        self._services.scheduler.charge(call.peer.account, time.perf_counter() - began)

    def _encode_and_deliver_reply(self, call: _Call, reply: Reply[Any], *, is_deferred: bool) -> None:
        """Encode a handler's response and pass it to the client's connection.

        Large deferred responses are encoded in steps.
        """
        header, response = call.header, reply.response
        meter = self.meters[header.api_key]
        try:
            if reply.error is not None:
                if isinstance(reply.error, Disconnect):
                    raise reply.error
                frame = self._encode_failure(header, call.request, call.peer, reply.error)
                reply.error = None
                meter.record_deferred_response(frame, call.received_at)
            elif is_deferred and response is not None and has_more_elements_than(response, ELEMENTS_PER_ITERATION_MAX):
                steps, done = (
                    self._encode_in_steps(call, response),
                    partial(self._deliver_encoded_response, call, reply),
                )
                # Encoding needs no slot of its own; otherwise all responses would be built before the first is encoded.
                cancel = self._services.scheduler.run_steps(call.peer.account, steps, done, shares_slot=True)
                if not reply.is_ready and reply.on_cancel is None:  # the response may be deferred for lack of memory
                    reply.on_cancel = cancel
                return
            else:
                frame = self._log_and_encode(header, response, call.peer, call.received_at)
                meter.record_response(
                    response, frame, call.received_at, meter.deferred if is_deferred else meter.immediate
                )
            self._deliver_response(header, frame, reply)
        except Exception as error:  # on any error, the client must not be left waiting
            reply.disconnect(error)

    def _run_and_encode_steps(self, call: _Call, reply: Reply[Any], steps: Steps[Any]) -> Steps[Any]:
        """Run a request handler that works in steps, then encode the response, in steps if it is large."""
        response = reply.apply_filters((yield from steps))
        if response is not None and has_more_elements_than(response, ELEMENTS_PER_ITERATION_MAX):
            return (yield from self._encode_in_steps(call, response))
        return response

    def _deliver_step_result(self, call: _Call, reply: Reply[Any], value: Any, error: BaseException | None) -> None:
        if reply.is_cancelled:
            return
        if isinstance(value, tuple):
            self._deliver_encoded_response(call, reply, value, None)
            return
        reply.is_resolved, reply.response, reply.error = True, value, error
        self._encode_and_deliver_reply(
            call, reply, is_deferred=reply.on_cancel is not None
        )  # on_cancel is set after the first slice

    def _encode_in_steps(self, call: _Call, response: Response) -> Steps[tuple[ResponseFrame, list[int]]]:
        """Encode a large response in steps: first its array elements one by one, then the whole response.

        Large elements are encoded in a thread.
        """
        version, kind = call.header.api_version, type(response)
        errors: list[int] = []
        response = copy.copy(response)  # other requests may get the same object
        for field in kind.__schema__.fields:
            elements = getattr(response, field.name)
            if not elements or not is_array_of_structs(field) or field.tag is not None:
                continue
            encoded: list[Struct | bytes] = []
            for element in elements if field.versions.covers(version) else ():
                yield None
                if not isinstance(element, bytes):
                    errors += find_error_codes(element)
                    encode = partial(encode_element, kind, element, version)
                    element = (
                        (yield encode) if has_more_elements_than(element, ELEMENTS_PER_ITERATION_MAX) else encode()
                    )
                encoded.append(element)
            setattr(response, field.name, encoded)
        return self._log_and_encode(call.header, response, call.peer, call.received_at), errors + find_error_codes(
            response
        )

    def _deliver_encoded_response(
        self, call: _Call, reply: Reply[Any], value: Any, error: BaseException | None
    ) -> None:
        if reply.is_cancelled:
            return
        if error is not None:
            reply.disconnect(Disconnect(str(error)) if isinstance(error, ExaminationLimitExceeded) else error)
            return
        frame, errors = value
        meter = self.meters[call.header.api_key]
        meter.count_errors(errors)
        meter.record_deferred_response(frame, call.received_at)
        self._deliver_response(call.header, frame, reply)

    def _log_and_encode(
        self, header: RequestHeader, response: Response | None, peer: ConnectedClient, received_at: float
    ) -> ResponseFrame:
        if logger.isEnabledFor(logging.DEBUG):
            self._log_response(header, response, peer, received_at)
        return self._encode_response(header, response)

    def _encode_response(self, header: RequestHeader, response: Response | None) -> ResponseFrame:
        if response is None:
            return None
        try:
            frame = encode_response(header.correlation_id, header.api_version, response)
        except UnencodableMessage as error:
            logger.error(
                "response encoding failed: api=%s version=%d; closing the connection",
                APIS[header.api_key].name,
                header.api_version,
                exc_info=error,
            )
            raise Disconnect(f"response encoding failed: {error}") from error
        return frame

    def _deliver_response(self, header: RequestHeader, frame: ResponseFrame, reply: Reply[Any]) -> None:
        """Pass an encoded response to the client's connection, or defer it until memory is available.

        Fetch responses are exempt: their handler has reserved the memory.
        """
        if header.api_key != FETCH_KEY and self._deferred.must_defer_response(frame):
            self._deferred.defer(frame, reply)
        else:
            reply.complete(frame)

    def _encode_failure(
        self, header: RequestHeader, request: Request, peer: ConnectedClient, error: BaseException
    ) -> ResponseFrame:
        """Return the encoded error response to a request whose handler raised an exception.

        Raises:
            Disconnect: The node stops; the outcome of the request is unknown, so no response is sent.
        """
        if isinstance(error, StorageError):
            self._on_fatal(error)
        if isinstance(error, StorageError | StoreClosedError):
            raise Disconnect("the node is stopping") from error
        failed = self._build_failure_response(header, request, peer, error)
        self.meters[header.api_key].count_errors(find_error_codes(failed))
        return self._encode_response(header, failed)

    def _build_failure_response(
        self, header: RequestHeader, request: Request, peer: ConnectedClient, error: BaseException
    ) -> Response:
        if isinstance(error, ExaminationLimitExceeded):
            error = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
        request_description = APIS[header.api_key].name, header.api_version, _describe_client(header, peer)
        if isinstance(error, KafkaError):  # an ordinary error that applies to the whole request
            logger.info("request rejected: api=%s version=%d client=%s: %s", *request_description, error)
            code = error.code
        else:
            self.meters[header.api_key].failures += 1
            logger.error(
                "request failed: api=%s version=%d client=%s: %s",
                *request_description,
                find_root_cause(error),
                exc_info=exc_info_if_unexpected(error),
            )
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return HANDLERS[header.api_key].failure(request, code)

    def _build_unsupported_version_response(self, error: UnsupportedVersion, peer: ConnectedClient) -> ResponseFrame:
        """Return the UNSUPPORTED_VERSION response: ApiVersions in version 0, other APIs in their latest version."""
        api = APIS[error.api_key]
        logger.debug(
            "request rejected: connection=%d api=%s version=%d: unsupported version",
            peer.connection_number,
            api.name,
            error.api_version,
        )
        response = HANDLERS[error.api_key].failure(REQUESTS[api.key](), ErrorCode.UNSUPPORTED_VERSION)
        self.meters[api.key].count_errors([ErrorCode.UNSUPPORTED_VERSION])
        version = 0 if error.api_key == API_VERSIONS_KEY else api.max_version
        return encode_response(error.correlation_id, version, response)

    def _log_response(
        self, header: RequestHeader, response: Response | None, peer: ConnectedClient, received_at: float
    ) -> None:
        logger.debug(
            "request completed: connection=%d client_id=%s api=%s version=%d correlation_id=%d ms=%.2f: %s",
            peer.connection_number,
            header.client_id,
            APIS[header.api_key].name,
            header.api_version,
            header.correlation_id,
            (time.perf_counter() - received_at) * 1000,
            ", ".join(list_error_names(response)) or "ok",
        )


def _cluster_permissions(services: Services) -> Mapping[int, AclOperation]:
    """Return the cluster operation that clients need for each API, by API key.

    The router authorizes these operations.
    """
    if services.authorizer is None:
        return {}
    from chronik.api.shared.authorization import (
        build_cluster_permissions_by_api,  # imported only if there is an authorizer
    )

    return build_cluster_permissions_by_api()


def _needs_slot_to_decode(api_key: int, size: int) -> bool:
    """Return whether a request of this API and size needs a scheduler slot before it is decoded."""
    if size > DECODED_INLINE_BYTES_MAX:
        return api_key != PRODUCE_KEY
    return api_key in READS_IN_STEPS


def _describe_client(header: RequestHeader, peer: ConnectedClient) -> str:
    return f"connection {peer.connection_number} ({header.client_id}, {peer.host}:{peer.port})"


def _log_request(header: RequestHeader, peer: ConnectedClient) -> None:
    """Log a request before it is handled, so that the log shows requests that hang."""
    api = APIS[header.api_key]
    logger.debug(
        "request received: client=%s api=%s version=%d correlation_id=%d",
        _describe_client(header, peer),
        api.name,
        header.api_version,
        header.correlation_id,
    )


async def _resolve_reply(
    reply: Reply[Any], coroutine: Coroutine[Any, Any, Any], charge: Callable[[float], None]
) -> None:
    try:
        await yield_if_over_budget()
        response = await measure_loop_time(coroutine, charge)
    except Exception as error:
        reply.fail(error)
    else:
        reply.resolve(response)


def _cancel_task(task: asyncio.Task[None], coroutine: Coroutine[Any, Any, Any]) -> None:
    """Cancel a task, and close its coroutine if it has not started."""
    task.cancel()
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
