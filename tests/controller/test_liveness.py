"""Liveness of brokers by heartbeats. A new leader grants every broker a full session."""

from __future__ import annotations

from chronik.controller.heartbeats import NO_RESPONSE
from chronik.controller.liveness import DOWN_SECONDS, LEADER_DOWN_SECONDS_MAX, UNANSWERED_SESSIONS_MAX, BrokerLiveness
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.records import Broker

SESSION = 3.0


def brokers(*statuses: BrokerStatus, epoch: int = 7) -> dict[int, Broker]:
    return {
        number: Broker(number, "localhost", 9092, None, status, epoch, bytes(16), bytes(16))
        for number, status in enumerate(statuses, 1)
    }


def changes(
    liveness: BrokerLiveness, known: dict[int, Broker], now: float, **gone_seconds: float
) -> list[UpdateBrokerStatus]:
    """Return the status changes. `b1=0.7` means that the port of broker 1 has refused connections for 0.7 s."""
    return liveness.status_changes(known, now, {int(name[1:]): seconds for name, seconds in gone_seconds.items()})


ONLINE, OFFLINE, MAINTENANCE = BrokerStatus.ONLINE, BrokerStatus.OFFLINE, BrokerStatus.MAINTENANCE


def test_new_leader_grants_every_broker_full_session() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    assert changes(liveness, known, 100.0) == []
    assert changes(liveness, known, 100.0 + SESSION) == []
    gone = changes(liveness, known, 100.1 + SESSION)
    assert gone == [UpdateBrokerStatus(1, OFFLINE, 7), UpdateBrokerStatus(2, OFFLINE, 7)]


def test_silent_broker_is_fenced_after_session() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    changes(liveness, known, 0.0)
    liveness.record_heartbeat(1, 7, 2.0)
    assert changes(liveness, known, 4.0) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_fenced_broker_is_unfenced_by_heartbeat() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(OFFLINE)
    assert changes(liveness, known, 0.0) == []
    liveness.record_heartbeat(1, 7, 1.0)
    assert changes(liveness, known, 1.5) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_heartbeat_of_earlier_epoch_is_ignored() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(OFFLINE)
    liveness.record_heartbeat(1, 6, 1.0)
    assert changes(liveness, known, 1.5) == []


def test_maintenance_status_is_kept_until_broker_is_fenced() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(MAINTENANCE)
    changes(liveness, known, 0.0)
    liveness.record_heartbeat(1, 7, 1.0)
    assert changes(liveness, known, 2.0) == []
    assert changes(liveness, known, 10.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_new_leadership_resets_heartbeats() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(ONLINE)
    liveness.record_heartbeat(1, 7, 0.0)
    liveness.reset()
    assert changes(liveness, known, 100.0) == []


def test_broker_with_refusing_port_is_fenced_early() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    liveness.record_heartbeat(1, 7, 0.0)
    liveness.record_heartbeat(2, 7, 0.0)
    assert changes(liveness, known, 0.4, b2=0.35) == []
    assert changes(liveness, known, 0.6, b2=DOWN_SECONDS) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_previous_leader_with_refusing_port_is_fenced_immediately() -> None:
    liveness = BrokerLiveness(SESSION)
    liveness.reset(100.0, predecessor=1)
    known = brokers(ONLINE, ONLINE)
    assert changes(liveness, known, 100.0, b1=1.2) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_new_leader_delays_early_fencing_of_other_brokers() -> None:
    """The previous leader may have received heartbeats a moment ago."""
    liveness = BrokerLiveness(SESSION)
    liveness.reset(100.0, predecessor=1)
    known = brokers(ONLINE, ONLINE)
    assert changes(liveness, known, 100.0, b2=60.0) == []
    assert changes(liveness, known, 100.0 + DOWN_SECONDS, b2=60.0) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_previous_leader_down_before_election_gets_same_delay() -> None:
    liveness = BrokerLiveness(SESSION)
    liveness.reset(100.0, predecessor=1)
    assert changes(liveness, brokers(ONLINE), 100.0, b1=LEADER_DOWN_SECONDS_MAX) == []
    assert changes(liveness, brokers(ONLINE), 100.0, b1=LEADER_DOWN_SECONDS_MAX - 0.1) != []


def test_broker_with_heartbeats_is_alive_despite_refusing_port() -> None:
    liveness = BrokerLiveness(SESSION)
    known = brokers(ONLINE)
    liveness.record_heartbeat(1, 7, 1.0)
    assert changes(liveness, known, 1.0 + DOWN_SECONDS / 2, b1=60.0) == []


def test_down_broker_needs_heartbeat_to_return() -> None:
    liveness = BrokerLiveness(SESSION)
    liveness.record_heartbeat(1, 7, 0.0)
    assert changes(liveness, brokers(ONLINE), 1.0, b1=0.9) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    assert changes(liveness, brokers(OFFLINE), 1.1, b1=1.0) == []
    assert changes(liveness, brokers(OFFLINE), 1.2) == [], "the port is open again, but no heartbeat has arrived"
    liveness.record_heartbeat(1, 7, 1.3)
    assert changes(liveness, brokers(OFFLINE), 1.4) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_uncommitted_fencing_is_proposed_again() -> None:
    liveness = BrokerLiveness(SESSION)
    liveness.record_heartbeat(1, 7, 0.0)
    for now in (1.0, 1.5, 2.0):
        assert changes(liveness, brokers(ONLINE), now, b1=now) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_delayed_heartbeat_does_not_undo_shutdown() -> None:
    liveness = BrokerLiveness(SESSION)
    liveness.record_heartbeat(1, 7, 0.0)
    assert changes(liveness, brokers(ONLINE), 0.1) == []
    assert changes(liveness, brokers(OFFLINE), 0.2) == [], "the broker has shut down since its last heartbeat"
    liveness.record_heartbeat(1, 7, 0.3)
    assert changes(liveness, brokers(OFFLINE), 0.4) == [], "the heartbeat was sent before the shutdown"
    liveness.record_heartbeat(1, 7, 0.2 + SESSION)
    assert changes(liveness, brokers(OFFLINE), 0.3 + SESSION) == []


def test_heartbeat_long_after_shutdown_unfences_broker() -> None:
    """In that case, the broker has not shut down."""
    liveness = BrokerLiveness(SESSION)
    liveness.record_heartbeat(1, 7, 0.0)
    changes(liveness, brokers(ONLINE), 0.1)
    changes(liveness, brokers(OFFLINE), 0.2)
    liveness.record_heartbeat(1, 7, 0.3 + SESSION)
    assert changes(liveness, brokers(OFFLINE), 0.4 + SESSION) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_heartbeat_before_fencing_commit_unfences_immediately() -> None:
    liveness = BrokerLiveness(SESSION)
    changes(liveness, brokers(ONLINE), 0.0)
    assert changes(liveness, brokers(ONLINE), 4.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.record_heartbeat(1, 7, 4.1)
    assert changes(liveness, brokers(ONLINE), 4.2) == []
    assert changes(liveness, brokers(OFFLINE), 4.3) == [UpdateBrokerStatus(1, ONLINE, 7)], (
        "the broker did not shut down"
    )


def test_broker_without_responses_is_fenced_until_it_receives_one() -> None:
    liveness = BrokerLiveness(SESSION)
    changes(liveness, brokers(ONLINE), 10.0)
    limit = UNANSWERED_SESSIONS_MAX * SESSION
    liveness.record_heartbeat(1, 7, 10.3, 10.0)
    for now in (11.0, 13.0, 15.0, 10.0 + limit):
        liveness.record_heartbeat(1, 7, now, 10.0)
        assert changes(liveness, brokers(ONLINE), now) == []
    liveness.record_heartbeat(1, 7, 10.4 + limit, 10.0)
    assert changes(liveness, brokers(ONLINE), 10.4 + limit) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.record_heartbeat(1, 7, 17.0, 10.0)
    assert changes(liveness, brokers(OFFLINE), 17.0) == []
    liveness.record_heartbeat(1, 7, 18.0, 17.5)
    assert changes(liveness, brokers(OFFLINE), 18.0) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_broker_without_first_response_gets_same_time() -> None:
    liveness = BrokerLiveness(SESSION)
    limit = UNANSWERED_SESSIONS_MAX * SESSION
    for now in (100.0, 102.0, 104.0, 100.0 + limit):
        liveness.record_heartbeat(1, 7, now, NO_RESPONSE)
        assert changes(liveness, brokers(ONLINE), now) == []
    liveness.record_heartbeat(1, 7, 100.1 + limit, NO_RESPONSE)
    assert changes(liveness, brokers(ONLINE), 100.1 + limit) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_broker_of_earlier_version_counts_as_receiving_responses() -> None:
    liveness = BrokerLiveness(SESSION)
    for now in range(0, 100, 2):
        liveness.record_heartbeat(1, 7, float(now))
        assert changes(liveness, brokers(ONLINE), float(now)) == []


def test_broker_fenced_for_silence_returns_with_next_heartbeat() -> None:
    liveness = BrokerLiveness(SESSION)
    liveness.record_heartbeat(1, 7, 0.0)
    assert changes(liveness, brokers(ONLINE), 1.0) == []
    assert changes(liveness, brokers(ONLINE), 5.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.record_heartbeat(1, 7, 5.1)
    assert changes(liveness, brokers(OFFLINE), 5.2) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_shutdown_is_respected_after_earlier_fencing() -> None:
    liveness = BrokerLiveness(SESSION)
    changes(liveness, brokers(ONLINE), 0.0)
    assert changes(liveness, brokers(ONLINE), 4.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.record_heartbeat(1, 7, 5.0)
    assert changes(liveness, brokers(OFFLINE), 5.1) == [UpdateBrokerStatus(1, ONLINE, 7)]
    liveness.record_heartbeat(1, 7, 20.0)
    assert changes(liveness, brokers(ONLINE), 20.1) == []
    assert changes(liveness, brokers(OFFLINE), 20.2) == [], "the broker has shut down"
