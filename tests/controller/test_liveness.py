"""Brokers are alive as long as they are heard; a new leader grants everyone a full session."""

from __future__ import annotations

from chronik.controller.heartbeats import NOT_ANSWERED
from chronik.controller.liveness import DEAF_SESSIONS, GONE_SECONDS, LEADER_GONE_SECONDS_MAX, Liveness
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.records import Broker

SESSION = 3.0


def brokers(*statuses: BrokerStatus, epoch: int = 7) -> dict[int, Broker]:
    return {
        number: Broker(number, "localhost", 9092, None, status, epoch, bytes(16), bytes(16))
        for number, status in enumerate(statuses, 1)
    }


def changes(
    liveness: Liveness, known: dict[int, Broker], now: float, **gone_seconds: float
) -> list[UpdateBrokerStatus]:
    """`b1=0.7` says that the port of broker 1 has refused for 0.7 s."""
    return liveness.changes(known, now, {int(name[1:]): seconds for name, seconds in gone_seconds.items()})


ONLINE, OFFLINE, MAINTENANCE = BrokerStatus.ONLINE, BrokerStatus.OFFLINE, BrokerStatus.MAINTENANCE


def test_a_new_leader_grants_every_broker_a_full_session() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    assert changes(liveness, known, 100.0) == []
    assert changes(liveness, known, 100.0 + SESSION) == []
    gone = changes(liveness, known, 100.1 + SESSION)
    assert gone == [UpdateBrokerStatus(1, OFFLINE, 7), UpdateBrokerStatus(2, OFFLINE, 7)]


def test_a_broker_that_is_heard_stays_and_one_that_falls_silent_goes() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    changes(liveness, known, 0.0)
    liveness.heard(1, 7, 2.0)
    assert changes(liveness, known, 4.0) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_a_broker_that_speaks_again_comes_back() -> None:
    liveness = Liveness(SESSION)
    known = brokers(OFFLINE)
    assert changes(liveness, known, 0.0) == []
    liveness.heard(1, 7, 1.0)
    assert changes(liveness, known, 1.5) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_a_word_from_an_earlier_life_does_not_count() -> None:
    liveness = Liveness(SESSION)
    known = brokers(OFFLINE)
    liveness.heard(1, 6, 1.0)
    assert changes(liveness, known, 1.5) == []


def test_maintenance_stays_until_it_is_lifted_but_not_beyond_death() -> None:
    liveness = Liveness(SESSION)
    known = brokers(MAINTENANCE)
    changes(liveness, known, 0.0)
    liveness.heard(1, 7, 1.0)
    assert changes(liveness, known, 2.0) == []
    assert changes(liveness, known, 10.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_what_was_heard_before_does_not_outlive_a_term() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE)
    liveness.heard(1, 7, 0.0)
    liveness.begin()
    assert changes(liveness, known, 100.0) == []


def test_a_broker_whose_port_refuses_goes_long_before_its_session_ends() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE, ONLINE)
    liveness.heard(1, 7, 0.0)
    liveness.heard(2, 7, 0.0)
    assert changes(liveness, known, 0.4, b2=0.35) == []
    assert changes(liveness, known, 0.6, b2=GONE_SECONDS) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_a_new_leader_grants_no_session_to_the_leader_before_if_its_port_refuses() -> None:
    liveness = Liveness(SESSION)
    liveness.begin(100.0, predecessor=1)
    known = brokers(ONLINE, ONLINE)
    assert changes(liveness, known, 100.0, b1=1.2) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_a_new_leader_grants_others_whose_port_refuses_the_time_that_it_takes() -> None:
    """The leader before may have heard them a moment ago."""
    liveness = Liveness(SESSION)
    liveness.begin(100.0, predecessor=1)
    known = brokers(ONLINE, ONLINE)
    assert changes(liveness, known, 100.0, b2=60.0) == []
    assert changes(liveness, known, 100.0 + GONE_SECONDS, b2=60.0) == [UpdateBrokerStatus(2, OFFLINE, 7)]


def test_the_leader_before_that_was_out_of_reach_long_before_it_was_succeeded_is_granted_as_much() -> None:
    liveness = Liveness(SESSION)
    liveness.begin(100.0, predecessor=1)
    assert changes(liveness, brokers(ONLINE), 100.0, b1=LEADER_GONE_SECONDS_MAX) == []
    assert changes(liveness, brokers(ONLINE), 100.0, b1=LEADER_GONE_SECONDS_MAX - 0.1) != []


def test_a_broker_that_is_heard_is_alive_whatever_its_port_does() -> None:
    liveness = Liveness(SESSION)
    known = brokers(ONLINE)
    liveness.heard(1, 7, 1.0)
    assert changes(liveness, known, 1.0 + GONE_SECONDS / 2, b1=60.0) == []


def test_one_that_was_gone_has_to_speak_before_it_comes_back() -> None:
    liveness = Liveness(SESSION)
    liveness.heard(1, 7, 0.0)
    assert changes(liveness, brokers(ONLINE), 1.0, b1=0.9) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    assert changes(liveness, brokers(OFFLINE), 1.1, b1=1.0) == []
    assert changes(liveness, brokers(OFFLINE), 1.2) == [], "its port answers again, and it has said nothing"
    liveness.heard(1, 7, 1.3)
    assert changes(liveness, brokers(OFFLINE), 1.4) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_a_fencing_that_was_not_taken_is_wanted_again() -> None:
    liveness = Liveness(SESSION)
    liveness.heard(1, 7, 0.0)
    for now in (1.0, 1.5, 2.0):
        assert changes(liveness, brokers(ONLINE), now, b1=now) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_a_heartbeat_that_was_under_way_does_not_undo_a_farewell() -> None:
    liveness = Liveness(SESSION)
    liveness.heard(1, 7, 0.0)
    assert changes(liveness, brokers(ONLINE), 0.1) == []
    assert changes(liveness, brokers(OFFLINE), 0.2) == [], "it was heard a moment ago, and left since"
    liveness.heard(1, 7, 0.3)
    assert changes(liveness, brokers(OFFLINE), 0.4) == [], "it was sent before"
    liveness.heard(1, 7, 0.2 + SESSION)
    assert changes(liveness, brokers(OFFLINE), 0.3 + SESSION) == []


def test_one_that_left_and_speaks_long_after_comes_back() -> None:
    """It has not left then, whatever took it for that."""
    liveness = Liveness(SESSION)
    liveness.heard(1, 7, 0.0)
    changes(liveness, brokers(ONLINE), 0.1)
    changes(liveness, brokers(OFFLINE), 0.2)
    liveness.heard(1, 7, 0.3 + SESSION)
    assert changes(liveness, brokers(OFFLINE), 0.4 + SESSION) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_one_that_was_dismissed_and_heard_before_that_was_decided_comes_back_at_once() -> None:
    liveness = Liveness(SESSION)
    changes(liveness, brokers(ONLINE), 0.0)
    assert changes(liveness, brokers(ONLINE), 4.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.heard(1, 7, 4.1)
    assert changes(liveness, brokers(ONLINE), 4.2) == []
    assert changes(liveness, brokers(OFFLINE), 4.3) == [UpdateBrokerStatus(1, ONLINE, 7)], "that was no farewell"


def test_a_broker_that_is_heard_and_does_not_hear_goes_and_comes_back_when_it_hears() -> None:
    liveness = Liveness(SESSION)
    changes(liveness, brokers(ONLINE), 10.0)
    limit = DEAF_SESSIONS * SESSION
    liveness.heard(1, 7, 10.3, 10.0)
    for now in (11.0, 13.0, 15.0, 10.0 + limit):
        liveness.heard(1, 7, now, 10.0)
        assert changes(liveness, brokers(ONLINE), now) == []
    liveness.heard(1, 7, 10.4 + limit, 10.0)
    assert changes(liveness, brokers(ONLINE), 10.4 + limit) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.heard(1, 7, 17.0, 10.0)
    assert changes(liveness, brokers(OFFLINE), 17.0) == []
    liveness.heard(1, 7, 18.0, 17.5)
    assert changes(liveness, brokers(OFFLINE), 18.0) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_a_broker_that_never_heard_this_leader_is_given_as_long() -> None:
    liveness = Liveness(SESSION)
    limit = DEAF_SESSIONS * SESSION
    for now in (100.0, 102.0, 104.0, 100.0 + limit):
        liveness.heard(1, 7, now, NOT_ANSWERED)
        assert changes(liveness, brokers(ONLINE), now) == []
    liveness.heard(1, 7, 100.1 + limit, NOT_ANSWERED)
    assert changes(liveness, brokers(ONLINE), 100.1 + limit) == [UpdateBrokerStatus(1, OFFLINE, 7)]


def test_a_broker_that_does_not_say_what_it_hears_is_believed_to_hear() -> None:
    liveness = Liveness(SESSION)
    for now in range(0, 100, 2):
        liveness.heard(1, 7, float(now))
        assert changes(liveness, brokers(ONLINE), float(now)) == []


def test_one_that_was_fenced_for_its_silence_comes_back_with_its_next_word() -> None:
    liveness = Liveness(SESSION)
    liveness.heard(1, 7, 0.0)
    assert changes(liveness, brokers(ONLINE), 1.0) == []
    assert changes(liveness, brokers(ONLINE), 5.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.heard(1, 7, 5.1)
    assert changes(liveness, brokers(OFFLINE), 5.2) == [UpdateBrokerStatus(1, ONLINE, 7)]


def test_a_farewell_holds_for_a_broker_that_was_once_taken_for_dead() -> None:
    liveness = Liveness(SESSION)
    changes(liveness, brokers(ONLINE), 0.0)
    assert changes(liveness, brokers(ONLINE), 4.0) == [UpdateBrokerStatus(1, OFFLINE, 7)]
    liveness.heard(1, 7, 5.0)
    assert changes(liveness, brokers(OFFLINE), 5.1) == [UpdateBrokerStatus(1, ONLINE, 7)]
    liveness.heard(1, 7, 20.0)
    assert changes(liveness, brokers(ONLINE), 20.1) == []
    assert changes(liveness, brokers(OFFLINE), 20.2) == [], "by its own word"
