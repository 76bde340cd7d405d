"""Priorities of password checks."""

from __future__ import annotations

from chronik.clock import ManualClock
from chronik.security.sasl.login_history import ENTRIES_MAX, REMEMBERED_SECONDS, VERIFIED_SECONDS, LoginHistory
from chronik.security.sasl.work import Priority

HOME, OFFICE = "192.0.2.1", "192.0.2.2"


def test_verified_user_has_high_priority_at_its_network_only() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.succeeded(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert history.priority(OFFICE, "alice") is history.priority(HOME, "bob") is Priority.NORMAL


def test_failure_lowers_its_network_but_not_other_verified_users_of_it() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.succeeded(HOME, "alice")
    history.failed(HOME, "bob")
    assert history.priority(HOME, "carol") is Priority.LOW
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert history.priority(OFFICE, "bob") is Priority.NORMAL


def test_failure_ends_the_high_priority_of_its_user() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.succeeded(HOME, "alice")
    history.failed(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.LOW
    history.succeeded(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH


def test_results_are_forgotten_with_time() -> None:
    clock = ManualClock()
    history = LoginHistory(clock.monotonic)
    history.succeeded(HOME, "alice")
    history.failed(OFFICE, "bob")
    clock.advance(REMEMBERED_SECONDS)
    assert history.priority(OFFICE, "bob") is Priority.NORMAL
    clock.advance(VERIFIED_SECONDS)
    assert history.priority(HOME, "alice") is Priority.NORMAL


def test_failures_from_many_networks_displace_no_success_and_take_bounded_memory() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.succeeded(HOME, "alice")
    for number in range(ENTRIES_MAX + 10):
        history.failed(f"network-{number}", "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert len(history._failed) == ENTRIES_MAX
    for number in range(ENTRIES_MAX + 10):
        history.succeeded(f"network-{number}", "alice")
    assert len(history._verified) == ENTRIES_MAX
