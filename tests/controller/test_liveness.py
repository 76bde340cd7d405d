"""Brokers are alive as long as they are heard; a new leader grants everyone a full session."""

from __future__ import annotations

from chronik.controller.liveness import Liveness
from chronik.metadata.commands import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.records import Broker

SESSION = 3.0


def brokers(*statuses: BrokerStatus, epoch: int = 7) -> dict[int, Broker]:
    return {
        number: Broker(number, "localhost", 9092, None, status, epoch, bytes(16), bytes(16))
        for number, status in enumerate(statuses, 1)
    }


ONLINE, OFFLINE, MAINTENANCE = BrokerStatus.ONLINE, BrokerStatus.OFFLINE, BrokerStatus.MAINTENANCE


def test_a_new_leader_grants_every_broker_a_full_session() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    assert liveness.changes(known, 100.0) == []
    assert liveness.changes(known, 100.0 + SESSION) == []
    gone = liveness.changes(known, 100.1 + SESSION)
    assert gone == [UpdateBrokerStatus(1, OFFLINE, 7), UpdateBrokerStatus(2, OFFLINE, 7)]


def test_a_broker_that_is_heard_stays_and_one_that_falls_silent_goes() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    liveness.changes(known, 0.0)
    liveness.heard(1, 7, 2.0)
    assert liveness.changes(known, 4.0) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_a_broker_that_speaks_again_comes_back() -> None:
    liveness = Liveness(SESSION)
    known = brokers(OFFLINE)
    assert liveness.changes(known, 0.0) == []
    liveness.heard(1, 7, 1.0)
    assert liveness.changes(known, 1.5) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_a_word_from_an_earlier_life_does_not_count() -> None:
    liveness = Liveness(SESSION)
    known = brokers(OFFLINE)
    liveness.heard(1, 6, 1.0)
    assert liveness.changes(known, 1.5) == []


def test_maintenance_stays_until_it_is_lifted_but_not_beyond_death() -> None:
    liveness = Liveness(SESSION)
    known = brokers(MAINTENANCE)
    liveness.changes(known, 0.0)
    liveness.heard(1, 7, 1.0)
    assert liveness.changes(known, 2.0) == []
    assert liveness.changes(known, 10.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_what_was_heard_before_does_not_outlive_a_term() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE)
    liveness.heard(1, 7, 0.0)
    liveness.begin()
    assert liveness.changes(known, 100.0) == []
