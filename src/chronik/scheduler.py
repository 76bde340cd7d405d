"""Fair scheduling of client work on the event loop. No I/O: the clock and `call_soon` are injected.

Each client has an account: its principal or, without authentication, its address. In every event-loop iteration,
client work runs inline until a budget of a few milliseconds is used up. Work beyond the budget is queued and runs in
the following iterations, the account with the least attained service first, and within an account the connection with
the least. Raft, replication and heartbeats between nodes are not scheduled here: they run in every iteration, so the
budget bounds how long they wait.

Unauthenticated clients of listeners that demand authentication have queues and a smaller budget of their own.

Listings are requests that examine many elements, in steps. They have a part of the budget and queues of their own. A
listing that takes longer than its slice is suspended. Suspended listings hold partial responses, so their number is
limited: beyond the limits, a listing waits before it starts, or after its first slice.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from functools import partial
from heapq import heappop, heappush
from time import perf_counter, thread_time
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

logger = logging.getLogger("chronik.scheduler")

ITERATION_SECONDS_MAX: Final = 0.005
"""Time budget of client work per event-loop iteration, in seconds. Other work on the loop waits at most for this time
plus one request."""

UNAUTHENTICATED_SECONDS_MAX: Final = 0.002
"""Time budget of unauthenticated clients per event-loop iteration in seconds: twenty times the cost of polling sockets.
"""

LISTING_SECONDS: Final = 0.002
"""Part of the iteration's budget, in seconds, that is reserved for queued listings, that is, requests that run in
steps. The rest is for requests that run without interruption, such as produce and fetch."""

SLICE_SECONDS: Final = 0.002
"""Maximum run time in seconds of a queued connection or request before the next one runs, long enough to make the cost
of switching small."""

LONGEST_WAITING_EVERY: Final = 8
"""Number of scheduling decisions after which the longest-waiting account is served instead of the least-served one."""

ATTAINED_HALF_LIFE_SECONDS: Final = 10.0
"""Half-life in seconds of an account's recent processing time. Accounts with less of it have priority."""

SUSPENDED_MAX: Final = 8
"""Maximum number of requests that may build long responses at the same time."""

SUSPENDED_PER_ACCOUNT_MAX: Final = 2
"""Maximum number of requests per account that may build long responses at the same time."""

LARGE_RESPONSE_BYTES: Final = 2 * 1024 * 1024
"""Response size in bytes above which a request must wait for the single slot for large responses."""

STARTED_PER_ACCOUNT_MAX: Final = 4
"""Maximum number of requests per account that have started but not finished. Further requests wait before they
start."""

_TICK_AFTER_SECONDS: Final = 0.001
"""Seconds of inline work after which the scheduler requests a callback in the next iteration to renew the budget. Light
traffic stays below the threshold and needs no callback."""

T = TypeVar("T")
F = TypeVar("F", bound="Flow")
S = TypeVar("S")

Steps = Generator[Callable[[], Any] | None, Any, T]
"""A generator of interruptible work. It yields None where it may be interrupted, or a function to run in a thread,
whose result is sent back to the generator."""

EXAMINED_MAX: Final = 1_000_000
"""Maximum number of elements, such as topics, that a request may examine, one per step. Listing everything in a large
cluster takes a tenth of the limit."""

DoneCallback = Callable[[Any, BaseException | None], None]
"""Callback that receives the result of a piece of work, or its error."""

_client: ContextVar[_ClientContext | None] = ContextVar("client", default=None)
"""Client on whose behalf the current task runs; None for tasks of the node itself."""


_current_request: ContextVar[_SuspendableRequest | None] = ContextVar("current_request", default=None)
"""The request whose steps are running, or None."""


class _ClientContext(NamedTuple):
    scheduler: Scheduler
    account: Account
    has_slot: bool = False
    """Whether the task holds a slot for long responses, which the steps that it runs share."""


class ExaminationLimitExceeded(Exception):
    """A request has examined more than EXAMINED_MAX elements."""

    def __init__(self) -> None:
        super().__init__(f"the request examines more than {EXAMINED_MAX:,} elements; request fewer at a time")


class Flow:
    """An entry of a fair queue. Its virtual time is the time that it has used, relative to other entries."""

    __slots__ = ("_entry", "is_queued", "virtual_time")

    def __init__(self) -> None:
        self.virtual_time = -math.inf
        self.is_queued = False  # an attribute, because every request reads it several times
        self._entry = 0  # number of the flow's heap entry, while it is queued


class Work(Flow):
    """Work for a client that runs in slices on the event loop."""

    __slots__ = ("share",)

    share: _AccountFlow
    """The part of an account in which the work is queued. The client's account may change while it is queued."""

    min_charge_seconds = 0.0
    """Minimum time in seconds charged to the iteration's budget, for work that continues after `resume` returns."""
    is_listing = False

    def resume(self) -> None:
        """Run until the time slice ends, then submit the rest of the work again."""


class CallbackWork(Work):
    """Work for a client that consists of a single function call."""

    __slots__ = ("resume",)

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()
        self.resume = function  # type: ignore[method-assign]


class FairQueue(Generic[F]):
    """A fair queue, which serves the flow that has used the least time first.

    The queue's virtual time is the least service of the flows that it serves. A flow that was idle resumes one slice
    below it, so that it precedes busy flows but cannot accumulate credit for a burst. At regular intervals, the
    longest-waiting flow is served, so that new flows cannot starve the others.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, F]] = []
        self._waiting: dict[F, None] = {}  # in order of arrival
        self._entries = 0
        self._pops = 0
        self.virtual_time = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, flow: F) -> None:
        """Add a flow to the queue, unless it is already queued."""
        if flow.is_queued:
            return
        flow.virtual_time = max(flow.virtual_time, self.virtual_time - SLICE_SECONDS)
        self._entries += 1
        flow._entry = self._entries
        flow.is_queued = True
        heappush(self._heap, (flow.virtual_time, self._entries, flow))
        self._waiting[flow] = None

    def pop(self) -> F:
        """Remove and return the flow to serve next. Raise IndexError if the queue is empty."""
        self._pops += 1
        if self._pops % LONGEST_WAITING_EVERY == 0 and self._waiting:
            flow = next(iter(self._waiting))
            self.discard(flow)
            return flow
        while True:
            virtual_time, entry, flow = heappop(self._heap)
            if flow.is_queued and flow._entry == entry:
                flow.is_queued = False
                del self._waiting[flow]
                self.virtual_time = max(self.virtual_time, virtual_time)
                return flow

    def discard(self, flow: F) -> None:
        """Remove a flow from the queue, if it is queued."""
        if flow.is_queued:
            flow.is_queued = False
            del self._waiting[flow]
            if not self._waiting:
                self._heap.clear()

    def charge(self, flow: F, seconds: float) -> None:
        """Charge used time to a flow that is not queued."""
        virtual_time, least = flow.virtual_time, self.virtual_time - SLICE_SECONDS
        flow.virtual_time = (virtual_time if virtual_time > least else least) + seconds


class _AccountFlow(Flow):
    """The queued work of an account of one kind: either its listings or its other requests."""

    __slots__ = ("account", "work")

    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account
        self.work: FairQueue[Work] = FairQueue()


class Account:
    """A principal or client address, with its queued work. All accounts get equal shares of the event loop."""

    __slots__ = (
        "_attained_at",
        "_attained_seconds",
        "connection_count",
        "is_authenticated",
        "key",
        "listings",
        "offloaded",
        "requests",
        "started_count",
        "suspended",
        "suspended_count",
        "unstarted",
    )

    def __init__(self, key: str = "", *, is_authenticated: bool = True) -> None:
        self.key = key
        self.is_authenticated = is_authenticated
        """Whether the client has authenticated; always True on listeners without authentication."""
        self.connection_count = 0
        self._attained_seconds = 0.0
        self._attained_at = 0.0
        self.requests = _AccountFlow(self)
        self.listings = _AccountFlow(self)
        self.started_count = 0
        """Number of requests of the account that have started but not finished."""
        self.suspended_count = 0
        """Number of slots for long responses that the account holds."""
        self.suspended: dict[_SlotRequester, None] = {}
        """Requests and tasks of the account that wait for a slot for long responses, in order of arrival."""
        self.unstarted: dict[_SuspendableRequest, None] = {}
        """Requests of the account that wait to start because too many others have started."""
        self.offloaded: deque[_OffloadedFunction] = deque()
        """Functions of the account that are queued for the worker thread."""

    def add_attained(self, seconds: float, now: float) -> None:
        """Add processing time to the account's attained service."""
        decay = 0.5 ** ((now - self._attained_at) / ATTAINED_HALF_LIFE_SECONDS)
        self._attained_seconds = self._attained_seconds * decay + seconds
        self._attained_at = now

    def attained_seconds(self, now: float) -> float:
        """Return the account's attained service in seconds: its processing time, which decays exponentially."""
        return float(self._attained_seconds * 0.5 ** ((now - self._attained_at) / ATTAINED_HALF_LIFE_SECONDS))


class _OffloadedFunction(NamedTuple):
    """A function queued for the worker thread, with its completion callback."""

    function: Callable[[], Any]
    done: DoneCallback


class _SlotRequester(Protocol):
    """The interface of a request or task that holds or awaits a slot for long responses."""

    has_slot: bool

    def on_granted(self) -> None:
        """Continue after the scheduler has granted the slot for long responses."""


class _SlotHolder:
    """A task that holds or awaits a slot for long responses."""

    __slots__ = ("granted_slot", "has_slot")

    def __init__(self) -> None:
        self.has_slot = False
        self.granted_slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_granted(self) -> None:
        if not self.granted_slot.done():
            self.granted_slot.set_result(None)


class _SuspendableRequest(Work):
    """A request that runs in steps and can be suspended between them."""

    __slots__ = (
        "_account",
        "_examined",
        "_on_done",
        "_scheduler",
        "_send",
        "_steps",
        "_withdraw",
        "has_large_slot",
        "has_slot",
        "is_admitted",
        "is_over",
        "response_bytes",
    )

    is_listing = True

    def __init__(self, scheduler: Scheduler, account: Account, steps: Steps[Any], on_done: DoneCallback) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._account = account
        self._steps = steps
        self._on_done = on_done
        self._send: tuple[Any, BaseException | None] = None, None
        self._examined = 0
        self._withdraw: Callable[[], None] = _do_nothing
        self.has_slot = False
        self.is_admitted = False
        """Whether the request uses the slot of the task that runs it, and needs no slot of its own."""
        self.response_bytes = 0
        self.has_large_slot = False
        """Whether the request holds the single large-response slot."""
        self.is_over = False

    @property
    def is_too_large(self) -> bool:
        """Return whether the response is large and the request does not hold the single slot for large responses."""
        return self.response_bytes > LARGE_RESPONSE_BYTES and not self.has_large_slot

    def resume(self) -> None:
        scheduler, steps = self._scheduler, self._steps
        (value, error), self._send = self._send, (None, None)
        token = _current_request.set(self)
        try:
            while True:
                function = steps.throw(error) if error is not None else steps.send(value)
                value = error = None
                if function is not None:
                    self._withdraw = scheduler.offload(self._account, function, self._on_offload_done)
                    return
                self._examined += 1
                if self._examined > EXAMINED_MAX:
                    steps.close()
                    raise ExaminationLimitExceeded
                if not scheduler.has_time() or self.is_too_large:
                    break
        except StopIteration as stop:
            self._finish(stop.value, None)
        except Exception as failure:
            self._finish(None, failure)
        else:
            scheduler.suspend_request(self._account, self)
        finally:
            _current_request.reset(token)

    def on_granted(self) -> None:
        self._scheduler.submit(self._account, self)

    def _on_offload_done(self, value: Any, error: BaseException | None) -> None:
        self._withdraw = _do_nothing  # the old one refers to this request and to the function's data
        if not self.is_over:
            self._send = value, error
            self._scheduler.submit(self._account, self)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        self.is_over = True
        self._scheduler.finish_request(self._account, self)
        self._on_done(value, error)

    def cancel(self) -> None:
        """Stop the request because its client has disconnected."""
        if not self.is_over:
            self.is_over = True
            self._withdraw()
            self._withdraw = _do_nothing
            self._steps.close()
            self._scheduler.finish_request(self._account, self)


class _Wakeup(Work):
    """Work that resumes a task of a client after it has yielded to the scheduler."""

    __slots__ = ("_future",)

    min_charge_seconds = SLICE_SECONDS
    is_listing = True

    def __init__(self, future: asyncio.Future[None]) -> None:
        super().__init__()
        self._future = future

    def resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class Scheduler:
    """The scheduler that divides a node's event loop among its clients."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        clock: Callable[[], float] | None = None,
        run_in_thread: Callable[[Callable[[], Any], DoneCallback], None] | None = None,
        accepted_max: int | None = None,
    ) -> None:
        """Create a scheduler without accounts or queued work.

        Args:
            call_soon: Schedules a callback for the next event-loop iteration.
            clock: Returns monotonic seconds.
            run_in_thread: Runs one function at a time in a thread and calls its callback on the loop.
            accepted_max: Connections that one iteration accepts at most. If it has accepted that many, more may be in
                the backlog, so unauthenticated clients get one request per iteration until the backlog is drained.
        """
        self.clock = clock or perf_counter
        self._call_soon = call_soon or _call_soon
        self._run_in_thread = run_in_thread or _run_in_default_executor
        self._accepted_max = accepted_max
        self._accepted = 0
        self._is_crowded = False
        self._accounts: dict[tuple[str, bool], Account] = {}
        self._requests: FairQueue[_AccountFlow] = FairQueue()
        self._listings: FairQueue[_AccountFlow] = FairQueue()
        self._unauthenticated: FairQueue[_AccountFlow] = FairQueue()
        self._used_seconds = 0.0
        self._unauthenticated_used_seconds = 0.0
        self._is_ticking = False
        self._deadline = 0.0  # of the work that is running
        self._running: _AccountFlow | None = None
        self._running_work: Work | None = None
        self._more_for: Account | None = None  # the account to which the running work was submitted again
        self._slots_free = SUSPENDED_MAX
        self._awaiting_slot: dict[Account, None] = {}
        self._large_slot_holder: _SuspendableRequest | None = None
        self._awaiting_large_slot: dict[Account, dict[_SuspendableRequest, None]] = {}
        self._awaiting_thread: dict[Account, None] = {}
        self._thread_is_busy = False
        self._admitted = 0

    # Accounts

    def open_account(self, key: str, *, is_authenticated: bool = True) -> Account:
        """Return the account for a new connection. Call `close_account` when the connection is closed."""
        account = self._accounts.get((key, is_authenticated))
        if account is None:
            account = self._accounts[key, is_authenticated] = Account(key, is_authenticated=is_authenticated)
        account.connection_count += 1
        return account

    def close_account(self, account: Account) -> None:
        """Release the account of a closed connection. The account is deleted with its last connection."""
        account.connection_count -= 1
        if account.connection_count <= 0:
            self._accounts.pop((account.key, account.is_authenticated), None)

    @property
    def account_count(self) -> int:
        return len(self._accounts)

    # Inline work

    def may_run(self, account: Account) -> bool:
        """Return whether an account's work may run immediately in this event-loop iteration."""
        if account.requests.is_queued or self._running is not None:
            return False
        if account.is_authenticated:
            return self._used_seconds < ITERATION_SECONDS_MAX
        return not self._is_crowded and self._unauthenticated_used_seconds < UNAUTHENTICATED_SECONDS_MAX

    def run(self, account: Account, work: Work) -> None:
        """Run work immediately if the budget of this event-loop iteration allows it; otherwise queue it."""
        if not self.may_run(account) or (work.is_listing and self._listings):
            self.submit(account, work)
            return
        share = account.listings if work.is_listing else account.requests
        began = self.clock()
        if account.is_authenticated:
            self._deadline = began + ITERATION_SECONDS_MAX - self._used_seconds
        else:
            self._deadline = began + UNAUTHENTICATED_SECONDS_MAX - self._unauthenticated_used_seconds
        self._resume_work(share, work)
        now = self.clock()
        share.work.charge(work, now - began)
        self._charge_iteration(account, now - began, now)
        if self._more_for is not None:
            self._submit_again(work)
        if share.work._waiting:
            self._get_queue(share, work).push(share)

    def has_time(self) -> bool:
        """Return whether the running work has time left in its slice."""
        return self.clock() < self._deadline

    def may_continue(self, account: Account) -> bool:
        """Return whether an account may do more work now, as part of the running work or immediately."""
        is_running = self._running is not None and self._running.account is account
        return self.has_time() if is_running else self.may_run(account)

    def charge(self, account: Account, seconds: float) -> None:
        """Charge an account for time that was used in this event-loop iteration outside of the scheduler."""
        if self._running is not None and self._running.account is account:  # charged when the running work returns
            return
        self._charge_iteration(account, seconds, self.clock())

    def _charge_iteration(self, account: Account, seconds: float, now: float) -> None:
        """Charge used time to the account and to the budget of this event-loop iteration."""
        self._charge_attained_service(account, seconds, now)
        if account.is_authenticated:
            self._used_seconds += seconds
        else:
            self._unauthenticated_used_seconds += seconds
        if not self._is_ticking and self._used_seconds + self._unauthenticated_used_seconds > _TICK_AFTER_SECONDS:
            self._schedule_tick()

    def _charge_attained_service(self, account: Account, seconds: float, now: float) -> None:
        account.add_attained(seconds, now)
        share = account.requests
        if share.is_queued:
            share.virtual_time += seconds  # its position in the queue changes when it is queued the next time
        else:
            (self._requests if account.is_authenticated else self._unauthenticated).charge(share, seconds)

    def charge_thread_time(self, key: str, seconds: float) -> None:
        """Charge an account for time used in another thread, if it has open connections."""
        account = self._accounts.get((key, True))
        if account is not None:
            self._charge_attained_service(account, seconds, self.clock())

    def count_accepted_connection(self) -> None:
        """Count a connection that was accepted in this iteration."""
        self._accepted += 1
        self._schedule_tick()

    # Queued work

    def submit(self, account: Account, work: Work) -> None:
        """Queue work, which runs in a later event-loop iteration."""
        if work is self._running_work:
            self._more_for = account
            return
        if not work.is_queued:
            work.share = share = _get_flow(account, work)
            share.work.push(work)
            if share is not self._running:
                self._get_queue(share, work).push(share)
        self._schedule_tick()

    def _submit_again(self, work: Work) -> None:
        account, self._more_for = self._more_for, None
        if account is not None:
            self.submit(account, work)

    def withdraw(self, account: Account, work: Work) -> None:
        """Remove a client's queued work because the client has disconnected."""
        if work is self._running_work:
            self._more_for = None
        if work.is_queued:
            share = work.share
            share.work.discard(work)
            if not share.work:
                self._get_queue(share, work).discard(share)

    @property
    def queued_account_count(self) -> int:
        """Return the number of accounts that have queued work."""
        return len(self._requests) + len(self._listings) + len(self._unauthenticated)

    def _get_queue(self, share: _AccountFlow, work: Work) -> FairQueue[_AccountFlow]:
        if work.is_listing:
            return self._listings
        return self._requests if share.account.is_authenticated else self._unauthenticated

    def _resume_work(self, share: _AccountFlow, work: Work) -> None:
        self._running, self._running_work = share, work
        try:
            work.resume()
        except Exception:  # a bug: other clients' work must continue
            logger.exception("client work failed: account=%s; continuing with other clients", share.account.key)
            self._more_for = None
        finally:
            self._running = self._running_work = None

    def _schedule_tick(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._call_soon(self._tick)

    def _tick(self) -> None:
        """Renew the time budget for the current event-loop iteration, and run queued work."""
        self._is_ticking = False
        self._used_seconds = self._unauthenticated_used_seconds = 0.0
        is_crowded = self._accepted_max is not None and self._accepted >= self._accepted_max
        self._is_crowded, self._accepted = is_crowded, 0
        if self._requests:
            kept_seconds = LISTING_SECONDS if self._listings else 0.0
            self._used_seconds = self._serve_queue(self._requests, ITERATION_SECONDS_MAX - kept_seconds)
        if self._listings:
            left_seconds = max(LISTING_SECONDS, ITERATION_SECONDS_MAX - self._used_seconds)
            self._used_seconds += self._serve_queue(self._listings, left_seconds)
        if self._unauthenticated:
            budget_seconds = 0.0 if is_crowded else UNAUTHENTICATED_SECONDS_MAX
            self._unauthenticated_used_seconds = self._serve_queue(self._unauthenticated, budget_seconds)
        if self._requests or self._listings or self._unauthenticated or is_crowded:
            self._schedule_tick()

    def _serve_queue(self, queue: FairQueue[_AccountFlow], budget_seconds: float) -> float:
        """Run queued work until the budget is used up. Return the seconds used, which may exceed the budget."""
        clock, used_seconds = self.clock, 0.0
        began = clock()
        while queue:
            share = queue.pop()
            work = share.work.pop()
            self._deadline = began + SLICE_SECONDS
            self._resume_work(share, work)
            now = clock()
            seconds, began = now - began, now
            share.work.charge(work, seconds)
            if queue is self._listings:
                queue.charge(share, max(seconds, work.min_charge_seconds))
            self._charge_attained_service(share.account, seconds, now)
            self._submit_again(work)
            if share.work:
                queue.push(share)
            used_seconds += max(seconds, work.min_charge_seconds)
            if used_seconds >= budget_seconds:
                break
        return used_seconds

    # Requests that run in steps

    def run_steps(
        self, account: Account, steps: Steps[Any], on_done: DoneCallback, *, shares_slot: bool = False
    ) -> Callable[[], None]:
        """Run a request's steps in slices, and call `on_done` with the result or error.

        With `shares_slot`, the steps are part of a request that holds a slot, and no further limit applies.

        Returns:
            A function that cancels the request when its client disconnects.
        """
        request = _SuspendableRequest(self, account, steps, on_done)
        if shares_slot:
            request.is_admitted = True
            self.run(account, request)
            return request.cancel
        if account.started_count >= STARTED_PER_ACCOUNT_MAX:
            account.unstarted[request] = None
            return request.cancel
        account.started_count += 1
        is_within = self._running is not None and self._running.account is account
        if is_within and not self._listings and self.has_time():  # submitted by the work that is running
            request.resume()
        else:
            self.run(account, request)
        return request.cancel

    def suspend_request(self, account: Account, request: _SuspendableRequest) -> None:
        """Suspend a request whose slice is used up. It waits for a slot, then for the large-response slot if needed.

        The opposite order could deadlock: the holder of the large-response slot could wait for a slot, and the holders
        of all slots for the large-response slot.
        """
        if not request.has_slot and not request.is_admitted:
            self._wait_for_response_slot(account, request)
        elif request.is_too_large:
            self._awaiting_large_slot.setdefault(account, {})[request] = None
            self._grant_large_response_slot()
        else:
            self.submit(account, request)

    def _grant_large_response_slot(self) -> None:
        if self._large_slot_holder is not None or not self._awaiting_large_slot:
            return
        account = self._choose_next_account(self._awaiting_large_slot)
        waiting = self._awaiting_large_slot[account]
        self._large_slot_holder = request = _pop_first(waiting)
        if not waiting:
            del self._awaiting_large_slot[account]
        request.has_large_slot = True
        self.submit(account, request)

    def _release_large_response_slot(self, account: Account, request: _SuspendableRequest) -> None:
        waiting = self._awaiting_large_slot.get(account)
        if waiting is not None:
            waiting.pop(request, None)
            if not waiting:
                del self._awaiting_large_slot[account]
        if self._large_slot_holder is request:
            self._large_slot_holder = None
            self._grant_large_response_slot()

    def _wait_for_response_slot(self, account: Account, holder: _SlotRequester) -> None:
        account.suspended[holder] = None
        if account.suspended_count < SUSPENDED_PER_ACCOUNT_MAX:
            self._awaiting_slot[account] = None
            self._grant_slots()

    def _release_slot(self, account: Account, holder: _SlotRequester) -> None:
        account.suspended.pop(holder, None)
        if holder.has_slot:
            holder.has_slot = False
            account.suspended_count -= 1
            self._slots_free += 1
            if account.suspended:
                self._awaiting_slot[account] = None

    def finish_request(self, account: Account, request: _SuspendableRequest) -> None:
        """Release the slots of a finished request, and start the next waiting request of its account."""
        self.withdraw(account, request)
        self._release_large_response_slot(account, request)
        if request.is_admitted:
            return
        if request in account.unstarted:
            del account.unstarted[request]
            return
        self._release_slot(account, request)
        account.started_count -= 1
        if account.unstarted:
            account.started_count += 1
            self.submit(account, _pop_first(account.unstarted))
        self._grant_slots()

    def _grant_slots(self) -> None:
        while self._slots_free and self._awaiting_slot:
            account = self._choose_next_account(self._awaiting_slot)
            if not account.suspended:
                del self._awaiting_slot[account]
                continue
            holder = _pop_first(account.suspended)
            self._slots_free -= 1
            account.suspended_count += 1
            holder.has_slot = True
            if not account.suspended or account.suspended_count >= SUSPENDED_PER_ACCOUNT_MAX:
                del self._awaiting_slot[account]
            holder.on_granted()

    @asynccontextmanager
    async def slot(self, account: Account) -> AsyncGenerator[None, None]:
        """Hold a slot for long responses while a task handles a request that needs much memory.

        Steps that the task runs in this context share the slot.
        """
        holder = _SlotHolder()
        try:
            self._wait_for_response_slot(account, holder)
            await holder.granted_slot
            token = _client.set(_ClientContext(self, account, has_slot=True))
            try:
                yield
            finally:
                _client.reset(token)
        finally:
            self._release_slot(account, holder)
            self._grant_slots()

    def _choose_next_account(self, accounts: Mapping[Account, object]) -> Account:
        """Return the account to serve next: usually the one with the least attained service."""
        self._admitted += 1
        if self._admitted % LONGEST_WAITING_EVERY == 0:
            return next(iter(accounts))
        now = self.clock()
        return min(accounts, key=lambda each: each.attained_seconds(now))

    # Work in the worker thread

    def offload(self, account: Account, function: Callable[[], Any], done: DoneCallback) -> Callable[[], None]:
        """Queue a function for the worker thread, and charge the account for the time that it takes.

        The account with the least attained service has priority.

        One function runs at a time: each holds the GIL most of the time and competes with the event loop for it.

        Returns:
            A function that withdraws a function that has not started, to release the memory that it refers to.
        """
        offload = _OffloadedFunction(function, done)
        account.offloaded.append(offload)
        self._awaiting_thread[account] = None
        self._run_next_offloaded_function()
        return partial(self._withdraw_offload, account, offload)

    def _withdraw_offload(self, account: Account, offload: _OffloadedFunction) -> None:
        if offload in account.offloaded:
            account.offloaded.remove(offload)
            if not account.offloaded:
                del self._awaiting_thread[account]

    def _run_next_offloaded_function(self) -> None:
        if self._thread_is_busy or not self._awaiting_thread:
            return
        account = self._choose_next_account(self._awaiting_thread)
        offload = account.offloaded.popleft()
        if not account.offloaded:
            del self._awaiting_thread[account]
        self._thread_is_busy = True
        seconds = 0.0

        def timed() -> Any:
            nonlocal seconds
            began = thread_time()
            try:
                return offload.function()
            finally:
                seconds = thread_time() - began

        def done(value: Any, error: BaseException | None) -> None:
            self._thread_is_busy = False
            self._charge_attained_service(account, seconds, self.clock())
            try:
                offload.done(value, error)
            finally:
                self._run_next_offloaded_function()

        self._run_in_thread(timed, done)


def _do_nothing() -> None:
    """Do nothing, in place of the function that withdraws queued work, when there is none."""


def _get_flow(account: Account, work: Work) -> _AccountFlow:
    return account.listings if work.is_listing else account.requests


def _pop_first(requests: dict[S, None]) -> S:
    request = next(iter(requests))
    del requests[request]
    return request


def _call_soon(callback: Callable[[], None]) -> None:
    # With an empty context: tasks that a connection starts must not inherit the client of the callback's caller.
    asyncio.get_running_loop().call_soon(callback, context=Context())


def _run_in_default_executor(function: Callable[[], Any], done: DoneCallback) -> None:
    def finished(future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            error = future.exception()
            done(None if error is not None else future.result(), error)

    asyncio.get_running_loop().run_in_executor(None, function).add_done_callback(finished)


class EventLoopBudget(Protocol):
    """The interface through which a connection schedules work on the event loop."""

    def run(self, work: Work) -> None:
        """Resume the work inline if the iteration's budget allows it; otherwise queue it."""

    def may_continue(self) -> bool:
        """Return whether the running work may continue. If not, the caller must submit the rest."""

    def submit(self, work: Work) -> None: ...

    def withdraw(self, work: Work) -> None: ...

    def charge(self, seconds: float) -> None: ...


class AccountBudget:
    """The event-loop budget of one connection. It looks up the account at each use, because the account may change."""

    __slots__ = ("_account", "_scheduler")

    def __init__(self, scheduler: Scheduler, account: Callable[[], Account]) -> None:
        self._scheduler = scheduler
        self._account = account

    def run(self, work: Work) -> None:
        self._scheduler.run(self._account(), work)

    def may_continue(self) -> bool:
        return self._scheduler.may_continue(self._account())

    def submit(self, work: Work) -> None:
        self._scheduler.submit(self._account(), work)

    def withdraw(self, work: Work) -> None:
        self._scheduler.withdraw(self._account(), work)

    def charge(self, seconds: float) -> None:
        self._scheduler.charge(self._account(), seconds)


@contextmanager
def charge_tasks_to_account(scheduler: Scheduler, account: Account) -> Generator[None]:
    """Charge the tasks that are created in this context to an account."""
    token = _client.set(_ClientContext(scheduler, account))
    try:
        yield
    finally:
        _client.reset(token)


def count_response_bytes(size: int) -> None:
    """Add to the counted response size of the request whose steps are running."""
    request = _current_request.get()
    if request is not None:
        request.response_bytes += size


async def yield_loop() -> None:
    """Yield to other work on the event loop. A client's task resumes when its account is scheduled."""
    client = _client.get()
    if client is None:
        await asyncio.sleep(0)
        return
    scheduler, account, _ = client
    future = asyncio.get_running_loop().create_future()
    wakeup = _Wakeup(future)
    scheduler.submit(account, wakeup)
    try:
        await future
    finally:
        scheduler.withdraw(account, wakeup)


async def yield_if_over_budget() -> None:
    """Yield to other work if the time budget of this event-loop iteration is used up."""
    client = _client.get()
    if client is not None and not client.scheduler.may_run(client.account):
        await yield_loop()


@asynccontextmanager
async def hold_response_slot() -> AsyncGenerator[None, None]:
    """Hold a slot for long responses for the client that the current task serves, if it serves one."""
    client = _client.get()
    if client is None or client.has_slot:
        yield
        return
    async with client.scheduler.slot(client.account):
        yield


async def run_in_slices(steps: Steps[T]) -> T:
    """Run steps in slices, yielding to other work on the event loop in between, and return their result.

    The steps of a task that runs for a client are charged to the client's account; other tasks yield to the loop after
    every slice.
    """
    client = _client.get()
    if client is None:
        return await _run_steps_without_client(steps)
    scheduler, account, has_slot = client
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    cancel = scheduler.run_steps(account, steps, partial(_settle_future, future), shares_slot=has_slot)
    try:
        return await future
    finally:
        cancel()


async def _run_steps_without_client(steps: Steps[T]) -> T:
    value: Any = None
    began = perf_counter()  # uvloop's time has a resolution of 1 ms, which is too coarse for a slice
    while True:
        try:
            function = steps.send(value)
        except StopIteration as stop:
            result: T = stop.value
            return result
        value = await asyncio.to_thread(function) if function is not None else None  # an exception ends the steps
        if perf_counter() - began > SLICE_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


def _settle_future(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread and return its result. The time is charged to the client that the task serves."""
    client = _client.get()
    if client is None:
        return await asyncio.to_thread(function)
    scheduler, account, _ = client
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    withdraw = scheduler.offload(account, function, partial(_settle_future, future))
    try:
        return await future
    finally:
        withdraw()


async def measure_loop_time(coroutine: Coroutine[Any, Any, T], took: Callable[[float], None]) -> T:
    """Await a coroutine, and pass the event-loop time that it used to `took`."""
    return cast(T, await _TimedAwaitable(coroutine, took))


class _TimedAwaitable:
    """An awaitable that measures the event-loop time of a coroutine."""

    def __init__(self, coroutine: Any, took: Callable[[float], None]) -> None:
        self._coroutine = coroutine
        self._took = took

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            began = perf_counter()
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self._took(perf_counter() - began)
            try:
                yield waited_for
            except BaseException as error:
                step = _create_thrower(self._coroutine, error)
            else:
                step = lambda: self._coroutine.send(None)  # noqa: E731


def _create_thrower(coroutine: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)
