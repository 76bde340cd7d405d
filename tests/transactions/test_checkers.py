"""Hand-written histories: each kind of violation is reported alone and by its name; valid histories pass."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.chaos.history import RecordId

from .checkers import CHECKERS, judge
from .evidence import TransactionEvidence
from .history import Outcome, RecordsDeleted, Straggled, TopicGone, TransactionEvent
from .history_builder import A, B, TransactionHistoryBuilder

BadHistory = Callable[[TransactionHistoryBuilder], set[str]]
"""Builds a history with one violation and returns the kinds that the checkers must report."""

BAD: list[BadHistory] = []
GOOD: list[Callable[[TransactionHistoryBuilder], None]] = []

ABORTED, UNKNOWN = Outcome.ABORTED, Outcome.UNKNOWN
G1A, G1B, UNSEEN = "aborted read (G1a)", "intermediate read (G1b)", "committed and never seen"


def invalid_history(history: BadHistory) -> BadHistory:
    BAD.append(history)
    return history


def valid_history(history: Callable[[TransactionHistoryBuilder], None]) -> Callable[[TransactionHistoryBuilder], None]:
    GOOD.append(history)
    return history


# Invalid histories


@invalid_history
def a_record_of_an_aborted_transaction_is_shown_to_the_end(story: TransactionHistoryBuilder) -> set[str]:
    (record,) = story.write_transaction(A, outcome=ABORTED)
    story.end_with(record, None)
    return {G1A}


@invalid_history
def a_record_of_an_aborted_transaction_is_shown_for_a_while(story: TransactionHistoryBuilder) -> set[str]:
    (record,) = story.write_transaction(A, outcome=ABORTED)
    story.read(record, None)
    story.end_with(record, None, hidden=(record,))
    return {G1A}


@invalid_history
def a_record_of_an_aborted_transaction_is_shown_and_then_its_topic_deleted(
    story: TransactionHistoryBuilder,
) -> set[str]:
    (record,) = story.write_transaction(A, outcome=ABORTED)
    story.read(record, None)
    story.add_event(TopicGone(topic=A.topic))
    return {G1A}


@invalid_history
def a_record_is_shown_and_its_transaction_turns_out_to_be_aborted(story: TransactionHistoryBuilder) -> set[str]:
    (record,) = story.write_transaction(A, outcome=UNKNOWN)
    story.read(record, None, node=2)
    story.end_with(record, None, hidden=(record,))
    return {G1A}


@invalid_history
def one_of_two_records_of_a_transaction_is_passed_over(story: TransactionHistoryBuilder) -> set[str]:
    first, second = story.write_transaction(A, A)
    story.read(first, None, None)
    story.end_with(first, second, None)
    return {G1B}


@invalid_history
def a_record_is_shown_when_the_rest_of_its_transaction_is_not_written(story: TransactionHistoryBuilder) -> set[str]:
    first, second = story.write_transaction(A, A)
    story.read(first, stable=1, high_watermark=1)
    story.end_with(first, second, None)
    return {G1B}


@invalid_history
def a_committed_transaction_is_there_in_one_partition_only(story: TransactionHistoryBuilder) -> set[str]:
    first, second = story.write_transaction(A, B)
    story.end_with(first, None)
    story.end_with(second, None, hidden=(second,), place=B)
    return {G1B, UNSEEN}


@invalid_history
def a_transaction_of_unknown_outcome_is_there_in_one_partition_only(story: TransactionHistoryBuilder) -> set[str]:
    first, _ = story.write_transaction(A, B, outcome=UNKNOWN)
    story.end_with(first, None)
    return {G1B}


@invalid_history
def a_record_above_the_last_stable_offset_is_shown(story: TransactionHistoryBuilder) -> set[str]:
    (first,), (second,) = story.write_transaction(A), story.write_transaction(A)
    story.read(first, None, second, stable=2)
    story.end_with(first, None, second, None)
    return {"unstable read"}


@invalid_history
def a_committed_record_is_passed_over_for_a_while(story: TransactionHistoryBuilder) -> set[str]:
    (first,), (second,) = story.write_transaction(A), story.write_transaction(A)
    story.read(first, None, None, None)
    story.end_with(first, None, second, None)
    return {UNSEEN}


@invalid_history
def one_node_never_shows_a_committed_record(story: TransactionHistoryBuilder) -> set[str]:
    (first,) = story.write_transaction(A)
    story.end_with(first, None)
    story.read(None, None, node=3)
    return {UNSEEN}


@invalid_history
def a_committed_transaction_is_taken_for_an_aborted_one(story: TransactionHistoryBuilder) -> set[str]:
    (first,) = story.write_transaction(A)
    story.end_with(first, None, hidden=(first,))
    return {UNSEEN}


@invalid_history
def a_record_of_a_committed_transaction_is_nowhere(story: TransactionHistoryBuilder) -> set[str]:
    first, _ = story.write_transaction(A, A)
    story.end_with(first, None)
    return {"lost write", G1B}


@invalid_history
def a_whole_committed_transaction_is_nowhere(story: TransactionHistoryBuilder) -> set[str]:
    story.write_transaction(A, B)
    return {"lost write"}


@invalid_history
def a_record_is_there_twice(story: TransactionHistoryBuilder) -> set[str]:
    (first,) = story.write_transaction(A)
    story.end_with(first, None, first, None)
    return {"duplicate"}


@invalid_history
def a_record_of_an_aborted_transaction_is_there_twice(story: TransactionHistoryBuilder) -> set[str]:
    (first,) = story.write_transaction(A, outcome=ABORTED)
    story.end_with(first, first, None, hidden=(first,))
    return {"duplicate"}


@invalid_history
def two_records_of_a_transaction_have_changed_places(story: TransactionHistoryBuilder) -> set[str]:
    first, second = story.write_transaction(A, A)
    story.end_with(second, first, None)
    return {"reordered"}


@invalid_history
def two_transactions_of_a_producer_have_changed_places(story: TransactionHistoryBuilder) -> set[str]:
    (first,), (second,) = story.write_transaction(A), story.write_transaction(A)
    story.end_with(second, None, first, None)
    return {"reordered"}


@invalid_history
def a_record_is_read_that_nobody_sent(story: TransactionHistoryBuilder) -> set[str]:
    story.end_with(RecordId("unknown", 1))
    return {"phantom"}


@invalid_history
def a_record_is_read_in_another_partition(story: TransactionHistoryBuilder) -> set[str]:
    (first,) = story.write_transaction(A)
    story.end_with(first, place=B)
    return {"phantom"}


@invalid_history
def two_nodes_show_different_records_at_one_offset(story: TransactionHistoryBuilder) -> set[str]:
    (first,), (second,) = story.write_transaction(A), story.write_transaction(A)
    story.read(second, is_committed=False, node=2)
    story.end_with(first, None, second, None)
    return {"inconsistent"}


@invalid_history
def a_last_stable_offset_goes_back_within_a_term(story: TransactionHistoryBuilder) -> set[str]:
    story.see_stable(5)
    story.see_stable(4, is_sure=False)
    return {"last stable offset went back"}


@invalid_history
def a_last_stable_offset_goes_back_with_the_next_leader(story: TransactionHistoryBuilder) -> set[str]:
    story.see_stable(5)
    story.see_stable(4, epoch=2)
    return {"last stable offset went back"}


@invalid_history
def a_transaction_is_left_open(story: TransactionHistoryBuilder) -> set[str]:
    (first,) = story.write_transaction(A, outcome=ABORTED)
    story.end_with(first, stable=0)
    return {"hanging transaction"}


@invalid_history
def a_position_of_an_aborted_transaction_is_told(story: TransactionHistoryBuilder) -> set[str]:
    transaction = story.begin()
    story.stage(transaction, 7)
    story.end(transaction, ABORTED)
    story.see_position(7)
    return {"aborted offset"}


@invalid_history
def a_position_is_told_before_anybody_staged_it(story: TransactionHistoryBuilder) -> set[str]:
    story.see_position(7)
    transaction = story.begin()
    story.stage(transaction, 7)
    story.end(transaction)
    return {"aborted offset"}


@invalid_history
def a_position_of_a_transaction_that_turns_out_to_be_aborted_is_told(story: TransactionHistoryBuilder) -> set[str]:
    transaction = story.begin()
    record = story.send(transaction)
    story.stage(transaction, 7)
    story.end(transaction, UNKNOWN)
    story.see_position(7)
    story.end_with(record, None, hidden=(record,))
    return {"aborted offset"}


@invalid_history
def a_position_that_was_committed_is_not_told(story: TransactionHistoryBuilder) -> set[str]:
    transaction = story.begin()
    story.stage(transaction, 7)
    story.end(transaction)
    story.see_position(-1)
    story.see_position(7, is_final=True)
    return {"lost offset", "not copied once"}


@invalid_history
def a_position_whose_records_are_committed_is_lost_in_the_end(story: TransactionHistoryBuilder) -> set[str]:
    transaction = story.begin()
    record = story.send(transaction)
    story.stage(transaction, 7)
    story.end(transaction, UNKNOWN)
    story.see_position(-1, is_final=True)
    story.end_with(record, None)
    return {"lost offset"}


@invalid_history
def a_record_is_copied_twice(story: TransactionHistoryBuilder) -> set[str]:
    rows: list[RecordId | None] = []
    for _ in range(2):
        transaction = story.begin()
        rows += [story.send(transaction, copied=0), None]
        story.stage(transaction, 1)
        story.end(transaction)
    story.see_position(1, is_final=True)
    story.end_with(*rows)
    return {"not copied once"}


@invalid_history
def a_record_is_not_copied(story: TransactionHistoryBuilder) -> set[str]:
    transaction = story.begin()
    record = story.send(transaction, copied=0)
    story.stage(transaction, 2)
    story.end(transaction)
    story.see_position(2, is_final=True)
    story.end_with(record, None)
    return {"not copied once"}


# Valid histories


@valid_history
def committed_and_aborted_transactions_take_turns(story: TransactionHistoryBuilder) -> None:
    first, other = story.write_transaction(A, B)
    second, gone = story.write_transaction(A, B, outcome=ABORTED)
    (third,) = story.write_transaction(A)
    story.read(first, None, None, stable=4)
    story.read(first, None, second, is_committed=False, stable=2)
    story.see_stable(2)
    story.see_stable(2)
    story.see_stable(4, epoch=2)
    story.end_with(first, None, second, None, third, None, hidden=(second,))
    story.end_with(other, None, gone, None, hidden=(gone,), place=B)


@valid_history
def a_transaction_shows_in_one_partition_before_it_does_in_the_next(story: TransactionHistoryBuilder) -> None:
    first, second = story.write_transaction(A, B)
    story.read(first, None, stable=2)
    story.read(place=B, stable=0)
    story.end_with(first, None)
    story.end_with(second, None, place=B)


@valid_history
def the_rest_of_a_transaction_is_behind_one_that_is_open(story: TransactionHistoryBuilder) -> None:
    first, second = story.write_transaction(A, A)
    open_one = story.begin("q")
    other = story.send(open_one)
    story.read(first, stable=1, high_watermark=4)
    story.end(open_one)
    story.end_with(first, other, second, None, None)


@valid_history
def what_is_unknown_is_committed_or_not(story: TransactionHistoryBuilder) -> None:
    (first,), (second,) = story.write_transaction(A, outcome=UNKNOWN), story.write_transaction(A, outcome=UNKNOWN)
    story.write_transaction(B, outcome=UNKNOWN)
    story.end_with(first, None, second, None, hidden=(second,))


@valid_history
def a_new_leader_that_does_not_know_yet_tells_less(story: TransactionHistoryBuilder) -> None:
    story.see_stable(5)
    story.see_stable(4, epoch=2, is_sure=False)
    story.see_stable(5, epoch=2)


@valid_history
def an_answer_that_was_asked_for_earlier_comes_later(story: TransactionHistoryBuilder) -> None:
    asked_at = story.tick()
    story.see_stable(5)
    story.see_stable(4, asked_at=asked_at)


@valid_history
def what_is_deleted_need_not_be_there(story: TransactionHistoryBuilder) -> None:
    first, second = story.write_transaction(A, B)
    story.add_event(RecordsDeleted(place=A, before=2))
    story.add_event(TopicGone(topic=B.topic))
    story.read(first, None)
    story.read(second, None, place=B)


@valid_history
def what_was_aborted_is_copied_again(story: TransactionHistoryBuilder) -> None:
    transaction = story.begin()
    gone = story.send(transaction, copied=0)
    story.stage(transaction, 1)
    story.end(transaction, ABORTED)
    story.see_position(-1)
    transaction = story.begin("q")
    record = story.send(transaction, copied=0)
    story.stage(transaction, 1)
    story.end(transaction)
    story.see_position(1)
    story.see_position(1, is_final=True)
    story.end_with(gone, None, record, None, hidden=(gone,))


@pytest.mark.parametrize("history", BAD, ids=lambda history: history.__name__)
def test_checker_reports_invalid_history(history: BadHistory) -> None:
    story = TransactionHistoryBuilder()
    expected = history(story)
    verdict = judge(story.build())
    kinds = {finding.kind for finding in verdict.violations}
    assert kinds == expected, verdict
    assert not verdict.v1_violations


@pytest.mark.parametrize("history", GOOD, ids=lambda history: history.__name__)
def test_checkers_accept_valid_history(history: Callable[[TransactionHistoryBuilder], None]) -> None:
    story = TransactionHistoryBuilder()
    history(story)
    assert judge(story.build()) == ([], [])


def test_every_checker_reports_at_least_one_history() -> None:
    silent = set(CHECKERS)
    for history in BAD:
        story = TransactionHistoryBuilder()
        history(story)
        evidence = TransactionEvidence(story.build())
        silent -= {checker for checker in CHECKERS if any(checker(evidence))}
    assert silent == set()


def test_v1_late_request_effects_are_counted_separately() -> None:
    story = TransactionHistoryBuilder()
    first = story.begin()
    story.end(first)
    second = story.begin()
    records = story.send(second), story.send(second)
    story.end(second)
    other = story.begin("q")
    lost = story.send(other)
    story.end(other)
    story.add_event(Straggled(transaction=first, kind="EndTxn", touched=second))
    story.end_with(records[0], None)
    verdict = judge(story.build())
    assert [finding.kind for finding in verdict.violations] == ["lost write"]
    assert str(lost) in verdict.violations[0].what
    assert {finding.kind for finding in verdict.v1_violations} == {"lost write", G1B}


@pytest.mark.parametrize("is_touched", [True, False])
def test_v1_record_copied_twice_after_late_end_is_counted_separately(is_touched: bool) -> None:
    """The late EndTxn commits a transaction that its client considers aborted and repeats."""
    story = TransactionHistoryBuilder()
    first = story.begin()
    story.end(first)
    second = story.begin()
    early = story.send(second, copied=0)
    story.end(second, UNKNOWN)
    third = story.begin()
    again = story.send(third, copied=0)
    story.stage(third, 1)
    story.end(third)
    if is_touched:
        story.add_event(Straggled(transaction=first, kind="EndTxn", touched=second))
    story.see_position(1, is_final=True)
    story.end_with(early, None, again, None)
    verdict = judge(story.build())
    found = verdict.v1_violations if is_touched else verdict.violations
    assert {finding.kind for finding in found} == {"not copied once"}
    assert (verdict.violations if is_touched else verdict.v1_violations) == []


@pytest.mark.parametrize("is_touched", [True, False])
def test_v1_offset_rewound_by_late_request_is_counted_separately(is_touched: bool) -> None:
    """Seed 21195: the request arrives during the third transaction, after the second has copied records."""
    story = TransactionHistoryBuilder()
    rows: list[RecordId | None] = []
    transactions = []
    for offset in range(3):
        transactions.append(story.begin())
        rows += [story.send(transactions[-1], copied=offset), None]
        story.stage(transactions[-1], offset + 1)
        if offset == 2 and is_touched:
            story.add_event(Straggled(transaction=transactions[0], kind="TxnOffsetCommit", touched=transactions[2]))
        story.end(transactions[-1])
    story.see_position(1, is_final=True)
    story.end_with(*rows)
    verdict = judge(story.build())
    assert "not copied once" in {
        finding.kind for finding in (verdict.v1_violations if is_touched else verdict.violations)
    }
    if is_touched:
        assert "not copied once" not in {finding.kind for finding in verdict.violations}


def test_history_events_can_be_encoded() -> None:
    story = TransactionHistoryBuilder()
    for history in BAD:
        history(story)
    story.add_event(Straggled(transaction=story.begin(), kind="EndTxn", touched=story.begin()))
    decoder = msgspec.json.Decoder(list[TransactionEvent])
    assert decoder.decode(msgspec.json.encode(story.events)) == story.events
