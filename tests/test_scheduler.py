"""The scheduler in simulated time: fairness within a factor of two, no starvation, bounded memory per account."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

import pytest

from chronik.scheduler import (
    ITERATION_SECONDS_MAX,
    LARGE_RESPONSE_BYTES,
    SLICE_SECONDS,
    STARTED_PER_ACCOUNT_MAX,
    SUSPENDED_MAX,
    SUSPENDED_PER_ACCOUNT_MAX,
    UNAUTHENTICATED_SECONDS_MAX,
    Account,
    ExaminationLimitExceeded,
    Scheduler,
    Work,
    count_response_bytes,
)

MILLISECOND = 0.001


class Simulation:
    """An event loop and a worker thread without real time."""

    def __init__(self, accepted_max: int | None = None) -> None:
        self.now = 0.0
        self._soon: list[Callable[[], None]] = []
        self.thread: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.scheduler = Scheduler(self._soon.append, lambda: self.now, self._run_in_thread, accepted_max)

    def _run_in_thread(self, function: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.thread.append((function, done))

    def iterate(self) -> float:
        """Run one event-loop iteration and return how long it took."""
        began = self.now
        due, self._soon[:] = list(self._soon), []
        for callback in due:
            callback()
        return self.now - began

    @property
    def is_idle(self) -> bool:
        return not self._soon


class Client(Work):
    """A connection that always has requests of the same cost."""

    def __init__(self, simulation: Simulation, account: Account, request_seconds: float, requests: int = 1 << 30):
        super().__init__()
        self._simulation = simulation
        self._account = account
        self._request_seconds = request_seconds
        self.left = requests
        self.handled = 0
        self.served_at: list[float] = []

    def resume(self) -> None:
        scheduler = self._simulation.scheduler
        while self.left:
            self._simulation.now += self._request_seconds
            self.left -= 1
            self.handled += 1
            self.served_at.append(self._simulation.now)
            if self.left and not scheduler.has_time():
                scheduler.submit(self._account, self)
                return

    def send(self, requests: int = 1) -> None:
        """Receive requests in this iteration, as a connection does."""
        self.left += requests
        if not self.is_queued:
            self._simulation.scheduler.run(self._account, self)

    @property
    def seconds(self) -> float:
        return self.handled * self._request_seconds


def test_short_requests_run_inline_until_the_iteration_budget_is_used_up() -> None:
    simulation = Simulation()
    account = simulation.scheduler.open_account("a")
    client = Client(simulation, account, ITERATION_SECONDS_MAX / 10, requests=0)
    client.send(25)
    assert client.handled in (10, 11), "floating-point seconds"
    simulation.iterate()
    assert 11 < client.handled <= 22
    while not simulation.is_idle:
        simulation.iterate()
    assert client.handled == 25


def test_light_traffic_schedules_no_callbacks() -> None:
    simulation = Simulation()
    account = simulation.scheduler.open_account("a")
    Client(simulation, account, MILLISECOND / 10, requests=0).send()
    assert simulation.is_idle


@pytest.mark.parametrize("seed", range(10))
def test_backlogged_accounts_get_equal_service(seed: int) -> None:
    rng = random.Random(seed)
    simulation = Simulation()
    accounts = [simulation.scheduler.open_account(f"account-{number}") for number in range(rng.randrange(2, 30))]
    clients: dict[Account, list[Client]] = {}
    for account in accounts:
        count = rng.choice([1, 1, 5, 20])
        costs = [rng.choice([0.05, 0.2, 1.0, 3.0]) * MILLISECOND for _ in range(count)]
        clients[account] = [Client(simulation, account, cost) for cost in costs]
    everyone = [client for each in clients.values() for client in each]
    rng.shuffle(everyone)
    for client in everyone:
        client.send(0)
    end = simulation.now + 5.0
    while simulation.now < end:
        assert simulation.iterate() <= ITERATION_SECONDS_MAX + SLICE_SECONDS + 3.1 * MILLISECOND
    service = [sum(client.seconds for client in each) for each in clients.values()]
    assert max(service) <= 2 * min(service)
    for each in clients.values():
        shares = [client.seconds for client in each]
        assert max(shares) <= 2 * min(shares) + 4 * MILLISECOND


@pytest.mark.parametrize("accounts", [1, 120])
def test_light_client_is_served_in_next_iteration_despite_backlogged_accounts(accounts: int) -> None:
    simulation = Simulation()
    for number in range(1_000):
        hostile = simulation.scheduler.open_account(f"hostile-{number % accounts}")
        Client(simulation, hostile, 2 * MILLISECOND).send(0)
    honest = Client(simulation, simulation.scheduler.open_account("honest"), MILLISECOND / 10, requests=0)
    for _ in range(500):  # all hostile accounts are new at first, too
        simulation.iterate()
    worst = 0.0
    for _ in range(200):
        for _ in range(5):
            simulation.iterate()
        asked = simulation.now
        honest.send()
        while honest.left or honest.is_queued:
            simulation.iterate()
        worst = max(worst, honest.served_at[-1] - asked)
    assert worst <= ITERATION_SECONDS_MAX + 3 * MILLISECOND


def test_light_connection_is_served_before_heavy_connections_of_its_account() -> None:
    simulation = Simulation()
    account = simulation.scheduler.open_account("shared")
    for _ in range(500):
        Client(simulation, account, 2 * MILLISECOND).send(0)
    for _ in range(1_000):
        simulation.iterate()
    light = Client(simulation, account, MILLISECOND / 10, requests=0)
    asked = simulation.now
    light.send()
    while light.left:
        simulation.iterate()
    assert light.served_at[-1] - asked <= 3 * ITERATION_SECONDS_MAX


def test_stream_of_new_accounts_does_not_starve_backlogged_account() -> None:
    """Each new account has attained nothing, but the queue's virtual time advances with their service."""
    simulation = Simulation()
    old = Client(simulation, simulation.scheduler.open_account("old"), MILLISECOND)
    old.send(0)
    for number in range(5_000):
        if number % 2:
            simulation.iterate()
        newcomer = Client(simulation, Account(f"new-{number}"), 2 * MILLISECOND, requests=0)
        newcomer.send()
    assert old.seconds > 0.05 * simulation.now


def test_idle_account_cannot_save_up_service_for_a_burst() -> None:
    simulation = Simulation()
    busy = Client(simulation, simulation.scheduler.open_account("busy"), MILLISECOND)
    late = Client(simulation, simulation.scheduler.open_account("late"), MILLISECOND)
    busy.send(0)
    while simulation.now < 10.0:
        simulation.iterate()
    before = busy.seconds
    late.send(0)
    while simulation.now < 12.0:
        simulation.iterate()
    assert busy.seconds - before > 0.9


def test_unauthenticated_clients_share_a_smaller_budget() -> None:
    simulation = Simulation()
    scheduler = simulation.scheduler
    known = Client(simulation, scheduler.open_account("known"), MILLISECOND / 10)
    known.send(0)
    for number in range(100):
        unknown = scheduler.open_account(f"unknown-{number}", is_authenticated=False)
        Client(simulation, unknown, MILLISECOND / 10).send(0)
    while simulation.now < 5.0:
        simulation.iterate()
    expected = ITERATION_SECONDS_MAX / (ITERATION_SECONDS_MAX + UNAUTHENTICATED_SECONDS_MAX)
    assert known.seconds / simulation.now > 0.9 * expected


def test_unauthenticated_clients_get_one_request_per_iteration_during_connection_flood() -> None:
    simulation = Simulation(accepted_max=16)
    scheduler = simulation.scheduler
    account = scheduler.open_account("unknown", is_authenticated=False)
    client = Client(simulation, account, MILLISECOND / 10, requests=0)

    def iterate(accepted: int) -> int:
        for _ in range(accepted):
            scheduler.count_accepted_connection()
        before = client.handled
        simulation.iterate()
        return client.handled - before

    iterate(16)
    client.send(100)
    assert client.handled == 0
    assert iterate(16) <= SLICE_SECONDS / (MILLISECOND / 10) + 1
    assert client.left > 0


def test_account_is_deleted_with_its_last_connection() -> None:
    scheduler = Simulation().scheduler
    first, second = scheduler.open_account("a"), scheduler.open_account("a")
    assert first is second
    scheduler.close_account(first)
    assert scheduler.account_count == 1
    scheduler.close_account(second)
    assert scheduler.account_count == 0


def test_withdrawn_work_is_not_resumed() -> None:
    simulation = Simulation()
    account = simulation.scheduler.open_account("a")
    client = Client(simulation, account, ITERATION_SECONDS_MAX, requests=10)
    client.send(0)
    assert client.is_queued
    simulation.scheduler.withdraw(account, client)
    while not simulation.is_idle:
        simulation.iterate()
    assert client.handled == 1
    assert simulation.scheduler.queued_account_count == 0


def test_work_whose_account_changes_while_running_is_queued_on_new_account() -> None:
    simulation = Simulation()
    scheduler = simulation.scheduler
    before, after = scheduler.open_account("address", is_authenticated=False), scheduler.open_account("principal")

    class Authenticating(Work):
        def resume(self) -> None:
            scheduler.submit(after, self)

    work = Authenticating()
    scheduler.run(before, work)
    assert len(after.requests.work) == 1
    assert not before.requests.work
    scheduler.withdraw(after, work)
    assert scheduler.queued_account_count == 0


def test_queued_work_is_withdrawn_from_its_original_account() -> None:
    simulation = Simulation()
    scheduler = simulation.scheduler
    before, after = scheduler.open_account("a"), scheduler.open_account("b")
    client = Client(simulation, before, MILLISECOND)
    scheduler.submit(before, client)
    scheduler.withdraw(after, client)
    assert scheduler.queued_account_count == 0


def test_failing_work_does_not_affect_other_queued_work(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation()
    account = simulation.scheduler.open_account("a")

    class Broken(Work):
        def resume(self) -> None:
            simulation.scheduler.submit(account, self)
            raise ZeroDivisionError

    client = Client(simulation, account, MILLISECOND, requests=1)
    broken = Broken()
    simulation.scheduler.submit(account, broken)
    simulation.scheduler.submit(account, client)
    while not simulation.is_idle:
        simulation.iterate()
    assert client.handled == 1
    assert not broken.is_queued
    assert "client work failed: account=a" in caplog.text


class Listing:
    """A request with steps of one millisecond."""

    def __init__(self, simulation: Simulation, account: Account, steps: int) -> None:
        self._simulation = simulation
        self.is_started = False
        self.is_done = False
        self.error: BaseException | None = None
        self.cancel = simulation.scheduler.run_steps(account, self._steps(steps), self._done)

    def _steps(self, count: int) -> Generator[None, None, str]:
        self.is_started = True
        for _ in range(count):
            self._simulation.now += MILLISECOND
            yield
        return "result"

    def _done(self, value: Any, error: BaseException | None) -> None:
        self.is_done = True
        self.error = error
        assert error is not None or value == "result"


def test_short_listing_runs_inline() -> None:
    simulation = Simulation()
    assert Listing(simulation, simulation.scheduler.open_account("a"), 3).is_done


@pytest.mark.parametrize("accounts", [1, 120])
def test_concurrent_listings_are_limited_and_all_complete(accounts: int) -> None:
    simulation = Simulation()
    opened = [simulation.scheduler.open_account(f"account-{number}") for number in range(accounts)]
    listings = [Listing(simulation, opened[number % accounts], 50) for number in range(600)]
    most_started = most_slots = 0
    while not simulation.is_idle:
        simulation.iterate()
        most_started = max(most_started, sum(each.is_started and not each.is_done for each in listings))
        most_slots = max(most_slots, sum(account.suspended_count for account in opened))
        assert all(account.started_count <= STARTED_PER_ACCOUNT_MAX for account in opened)
        assert all(account.suspended_count <= SUSPENDED_PER_ACCOUNT_MAX for account in opened)
    assert all(each.is_done for each in listings)
    assert most_slots <= SUSPENDED_MAX
    assert most_started <= accounts * STARTED_PER_ACCOUNT_MAX
    assert all(account.started_count == account.suspended_count == 0 for account in opened)


def test_honest_listing_gets_the_next_free_slot_while_hostile_listings_wait() -> None:
    simulation = Simulation()
    for number in range(480):
        Listing(simulation, simulation.scheduler.open_account(f"hostile-{number % 120}"), 100)
    while simulation.now < 2.0:
        simulation.iterate()
    asked = simulation.now
    honest = Listing(simulation, simulation.scheduler.open_account("honest"), 20)
    while not honest.is_done:
        simulation.iterate()
    assert simulation.now - asked < 1.0


@pytest.mark.parametrize("accounts", [1, 120])
def test_producer_keeps_half_of_the_loop_during_a_thousand_listings(accounts: int) -> None:
    simulation = Simulation()
    for number in range(1_000):
        Listing(simulation, simulation.scheduler.open_account(f"hostile-{number % accounts}"), 100)
    producer = Client(simulation, simulation.scheduler.open_account("producer"), MILLISECOND / 5)
    producer.send(0)
    began, before = simulation.now, producer.seconds
    while simulation.now < began + 5.0:
        simulation.iterate()
    assert producer.seconds - before > 0.5 * 5.0


@pytest.mark.parametrize("after", [0, 1, 3, 10])
def test_cancelled_listing_releases_its_slot(after: int) -> None:
    simulation = Simulation()
    account = simulation.scheduler.open_account("a")
    listings = [Listing(simulation, account, 100) for _ in range(10)]
    for _ in range(after):
        simulation.iterate()
    for each in listings:
        each.cancel()
    assert account.started_count == account.suspended_count == 0
    assert not account.unstarted
    assert not account.suspended
    last = Listing(simulation, account, 10)
    while not last.is_done:
        simulation.iterate()


class LargeListing(Listing):
    """A listing whose response grows with every step."""

    STEP_BYTES = LARGE_RESPONSE_BYTES // 10

    def _steps(self, count: int) -> Generator[None, None, str]:
        self.held_bytes = 0
        for _ in range(count):
            self._simulation.now += MILLISECOND
            self.held_bytes += self.STEP_BYTES
            count_response_bytes(self.STEP_BYTES)
            yield
        self.held_bytes = 0
        return "result"


@pytest.mark.parametrize("accounts", [1, 120])
def test_large_responses_are_built_one_at_a_time(accounts: int) -> None:
    simulation = Simulation()
    opened = [simulation.scheduler.open_account(f"account-{number}") for number in range(accounts)]
    listings = [LargeListing(simulation, opened[number % accounts], 200) for number in range(60)]
    most_large = 0
    while not simulation.is_idle:
        simulation.iterate()
        large = [each for each in listings if getattr(each, "held_bytes", 0) > LARGE_RESPONSE_BYTES + each.STEP_BYTES]
        most_large = max(most_large, len(large))
    assert all(each.is_done for each in listings)
    assert most_large == 1


def test_small_listing_completes_while_large_responses_wait() -> None:
    simulation = Simulation()
    for number in range(SUSPENDED_MAX - 1):
        LargeListing(simulation, simulation.scheduler.open_account(f"account-{number}"), 100_000)
    listing = Listing(simulation, simulation.scheduler.open_account("honest"), 100)
    for _ in range(200):
        simulation.iterate()
    assert listing.is_done


@pytest.mark.parametrize("after", [10, 100])
def test_cancelled_large_response_releases_the_large_response_slot(after: int) -> None:
    simulation = Simulation()
    accounts = [simulation.scheduler.open_account(f"account-{number}") for number in range(3)]
    listings = [LargeListing(simulation, account, 1_000) for account in accounts]
    for _ in range(after):
        simulation.iterate()
    for each in listings[:2]:
        each.cancel()
    while not simulation.is_idle:
        simulation.iterate()
    assert listings[2].is_done


def test_failed_listing_reports_its_error() -> None:
    simulation = Simulation()
    outcomes: list[tuple[Any, BaseException | None]] = []

    def steps() -> Generator[None, None, None]:
        yield
        raise ZeroDivisionError

    account = simulation.scheduler.open_account("a")
    simulation.scheduler.run_steps(account, steps(), lambda value, error: outcomes.append((value, error)))
    ((value, error),) = outcomes
    assert value is None
    assert isinstance(error, ZeroDivisionError)
    assert account.started_count == 0


def test_listing_above_examined_limit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.scheduler.EXAMINED_MAX", 100)
    simulation = Simulation()
    account = simulation.scheduler.open_account("a")
    at_the_limit, one_above = Listing(simulation, account, 100), Listing(simulation, account, 101)
    while not simulation.is_idle:
        simulation.iterate()
    assert at_the_limit.is_done
    assert at_the_limit.error is None
    assert isinstance(one_above.error, ExaminationLimitExceeded)


def test_worker_thread_runs_one_function_at_a_time_and_charges_account() -> None:
    simulation = Simulation()
    scheduler = simulation.scheduler
    heavy, light = scheduler.open_account("heavy"), scheduler.open_account("light")
    order: list[str] = []
    for _ in range(3):
        scheduler.offload(heavy, lambda: _burn(0.005), lambda value, error: order.append("heavy"))
    scheduler.offload(light, lambda: None, lambda value, error: order.append("light"))
    while simulation.thread:
        assert len(simulation.thread) == 1
        function, done = simulation.thread.pop()
        done(function(), None)
    assert order == ["heavy", "light", "heavy", "heavy"]
    assert heavy.attained_seconds(simulation.now) >= 0.015


def test_withdrawn_offloaded_function_is_not_run() -> None:
    simulation = Simulation()
    scheduler = simulation.scheduler
    account, gone = scheduler.open_account("a"), scheduler.open_account("gone")
    scheduler.offload(account, lambda: None, lambda value, error: None)
    done: list[object] = []
    withdraw = scheduler.offload(gone, lambda: None, lambda value, error: done.append(value))
    withdraw()
    assert not gone.offloaded
    while simulation.thread:
        function, finished = simulation.thread.pop()
        finished(function(), None)
    assert not done


def _burn(seconds: float) -> None:
    import time

    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_steps_receive_result_of_offloaded_function() -> None:
    simulation = Simulation()
    outcomes: list[Any] = []

    def steps() -> Generator[Callable[[], int] | None, int, int]:
        yield None
        return (yield lambda: 41) + 1

    account = simulation.scheduler.open_account("a")
    simulation.scheduler.run_steps(account, steps(), lambda value, error: outcomes.append(value))
    function, done = simulation.thread.pop()
    done(function(), None)
    while not simulation.is_idle:
        simulation.iterate()
    assert outcomes == [42]
    assert account.started_count == 0
