"""Incremental fetch sessions: limits, epochs, owners, and the partitions that a response includes."""

from __future__ import annotations

import pytest

from chronik.broker.requests.fetch_sessions import (
    EPOCH_MAX,
    SESSION_ID_MAX,
    FetchSessionCache,
    SessionOwner,
    SessionPartition,
)
from chronik.limits import FETCH_SESSION_IDLE_SECONDS
from chronik.principals import ANONYMOUS, Principal
from chronik.protocol.errors import ErrorCode, KafkaError

OWNER = ("10.0.0.1", ANONYMOUS)


def wanted(*indexes: int) -> list[SessionPartition]:
    return [SessionPartition("topic", index, fetch_offset=0, max_bytes=1000) for index in indexes]


def test_session_adds_and_forgets_partitions() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0, 1, 2), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    moved = SessionPartition("topic", 1, fetch_offset=7, max_bytes=1000)
    session = sessions.resume(session.id, 1, [moved], [("topic", 0)], now=1, uses_topic_ids=False, owner=OWNER)
    assert [(each.partition, each.fetch_offset) for each in session.partitions.values()] == [(1, 7), (2, 0)]


def test_unknown_session_or_wrong_epoch_is_rejected() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    with pytest.raises(KafkaError) as unknown:
        sessions.resume(session.id + 1, 1, (), (), now=0, uses_topic_ids=False, owner=OWNER)
    assert unknown.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError) as stale:
        sessions.resume(session.id, 2, (), (), now=0, uses_topic_ids=False, owner=OWNER)
    assert stale.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_session_epoch_wraps_around_to_one() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    session.epoch = EPOCH_MAX
    assert sessions.resume(session.id, EPOCH_MAX, (), (), now=0, uses_topic_ids=False, owner=OWNER).epoch == 1


def test_incremental_response_includes_changed_partitions() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    key = ("topic", 0)
    assert session.must_include_partition(key, 5, 0, has_records=False)
    assert not session.must_include_partition(key, 5, 0, has_records=False)
    assert session.must_include_partition(key, 5, 0, has_records=True)
    assert session.must_include_partition(key, 6, 0, has_records=False)
    assert session.must_include_partition(key, 6, 1, has_records=False)
    session.record_partition_error(key)
    assert session.must_include_partition(key, 6, 1, has_records=False)


def test_partition_with_records_moves_to_end_of_session() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0, 1, 2), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    session.must_include_partition(("topic", 0), 5, 0, has_records=True)
    assert [each.partition for each in session.partitions.values()] == [1, 2, 0]


def test_full_session_cache_evicts_only_idle_sessions() -> None:
    sessions = FetchSessionCache(sessions_max=2)
    first, second = (sessions.create(wanted(0), now=now, uses_topic_ids=False, owner=OWNER) for now in (0, 10))
    assert first is not None
    assert second is not None
    assert sessions.create(wanted(0), now=20, uses_topic_ids=False, owner=OWNER) is None
    third = sessions.create(wanted(0), now=FETCH_SESSION_IDLE_SECONDS, uses_topic_ids=False, owner=OWNER)
    assert third is not None
    assert len(sessions) == 2
    with pytest.raises(KafkaError):
        sessions.resume(first.id, 1, (), (), now=FETCH_SESSION_IDLE_SECONDS, uses_topic_ids=False, owner=OWNER)
    assert (
        sessions.resume(second.id, 1, (), (), now=FETCH_SESSION_IDLE_SECONDS, uses_topic_ids=False, owner=OWNER)
        is second
    )


def test_partitions_of_all_sessions_are_limited() -> None:
    sessions = FetchSessionCache(partitions_max=5)
    assert sessions.create(wanted(0, 1, 2), now=0, uses_topic_ids=False, owner=OWNER) is not None
    assert sessions.create(wanted(0, 1, 2), now=0, uses_topic_ids=False, owner=OWNER) is None
    assert sessions.create(wanted(0, 1), now=0, uses_topic_ids=False, owner=OWNER) is not None


def test_session_exceeding_partition_limit_is_closed() -> None:
    sessions = FetchSessionCache(partitions_max=5)
    session = sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    sessions.resume(session.id, 1, wanted(*range(5)), (), now=0, uses_topic_ids=False, owner=OWNER)
    with pytest.raises(KafkaError) as grown:
        sessions.resume(session.id, 2, wanted(5), (), now=0, uses_topic_ids=False, owner=OWNER)
    assert grown.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    assert sessions.create(wanted(*range(5)), now=0, uses_topic_ids=False, owner=OWNER) is not None


def test_session_cannot_mix_topic_ids_and_names() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    with pytest.raises(KafkaError) as mixed:
        sessions.resume(session.id, 1, (), (), now=0, uses_topic_ids=True, owner=OWNER)
    assert mixed.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_partition_forgotten_during_fetch_is_not_restored() -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0, 1), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    session.update((), [("topic", 0)])
    assert session.must_include_partition(("topic", 0), 5, 0, has_records=True)
    assert not session.sent_offsets


def test_session_ids_are_random() -> None:
    sessions = FetchSessionCache()
    begun = [sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER) for _ in range(200)]
    ids = [session.id for session in begun if session is not None]
    assert len(set(ids)) == 200
    assert all(0 < each <= SESSION_ID_MAX for each in ids)
    assert max(ids) > 1_000_000
    assert ids != sorted(ids)


def test_session_id_in_use_is_not_reused() -> None:
    chosen = iter([5, 5, 6])
    sessions = FetchSessionCache(choose_id=lambda: next(chosen))
    begun = [sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER) for _ in range(2)]
    assert [session.id for session in begun if session is not None] == [5, 6]


@pytest.mark.parametrize("other", [("10.0.0.2", OWNER[1]), (OWNER[0], Principal("User", "other"))])
def test_session_is_bound_to_host_and_principal(other: SessionOwner) -> None:
    sessions = FetchSessionCache()
    session = sessions.create(wanted(0), now=0, uses_topic_ids=False, owner=OWNER)
    assert session is not None
    with pytest.raises(KafkaError) as refused:
        sessions.resume(session.id, 1, (), (), now=0, uses_topic_ids=False, owner=other)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.close(session.id, other)
    assert sessions.resume(session.id, 1, (), (), now=0, uses_topic_ids=False, owner=OWNER) is session
    sessions.close(session.id, OWNER)
    assert len(sessions) == 0
