"""Login history: priorities of password checks."""

from __future__ import annotations

from chronik.clock import ManualClock
from chronik.security.sasl.fair_pool import Priority
from chronik.security.sasl.login_history import ENTRIES_MAX, FAILURE_TTL_SECONDS, SUCCESS_TTL_SECONDS, LoginHistory

HOME, OFFICE = "192.0.2.1", "192.0.2.2"


def test_verified_user_has_high_priority_on_its_network_only() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert history.priority(OFFICE, "alice") is history.priority(HOME, "bob") is Priority.NORMAL


def test_failed_login_lowers_network_priority_except_for_verified_users() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    history.record_failure(HOME, "bob")
    assert history.priority(HOME, "carol") is Priority.LOW
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert history.priority(OFFICE, "bob") is Priority.NORMAL


def test_failed_login_revokes_high_priority_of_its_user() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    history.record_failure(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.LOW
    history.record_success(HOME, "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH


def test_login_results_expire() -> None:
    clock = ManualClock()
    history = LoginHistory(clock.monotonic)
    history.record_success(HOME, "alice")
    history.record_failure(OFFICE, "bob")
    clock.advance(FAILURE_TTL_SECONDS)
    assert history.priority(OFFICE, "bob") is Priority.NORMAL
    clock.advance(SUCCESS_TTL_SECONDS)
    assert history.priority(HOME, "alice") is Priority.NORMAL


def test_login_history_is_bounded_and_failures_evict_no_successes() -> None:
    history = LoginHistory(ManualClock().monotonic)
    history.record_success(HOME, "alice")
    for number in range(ENTRIES_MAX + 10):
        history.record_failure(f"network-{number}", "alice")
    assert history.priority(HOME, "alice") is Priority.HIGH
    assert len(history._failed) == ENTRIES_MAX
    for number in range(ENTRIES_MAX + 10):
        history.record_success(f"network-{number}", "alice")
    assert len(history._verified) == ENTRIES_MAX
