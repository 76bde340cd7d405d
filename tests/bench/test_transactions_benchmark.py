"""Goals for transactions: Kafka's rate and commit latency, with a tolerance for three nodes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bench.kafka_comparison import RunningServer
from bench.transactions import (
    TransactionGoal,
    TransactionRound,
    TransactionsSubject,
    build_table,
    create_subjects,
    is_met,
)

RECORDS = 10
STRICT, LENIENT = TransactionGoal(1.0, 1.0), TransactionGoal(0.7, 1.5)


def subject(
    transactions: int, commit_ms: float, goal: TransactionGoal | None = None, nodes: int = 1, is_kafka: bool = False
) -> TransactionsSubject:
    """Return a subject with that many transactions in each of two rounds of one second."""

    def start(directory: Path) -> AbstractContextManager[RunningServer]:
        raise AssertionError("not started here")

    rounds = [TransactionRound([commit_ms / 1000] * transactions, 1.0) for _ in range(2)]
    return TransactionsSubject("Kafka" if is_kafka else "Chronik", nodes, start, goal, is_kafka, {RECORDS: rounds})


@pytest.mark.parametrize(
    ("transactions", "commit_ms", "goal", "expected"),
    [
        (100, 5.0, STRICT, True),
        (99, 5.0, STRICT, False),
        (100, 5.1, STRICT, False),
        (70, 7.5, LENIENT, True),
        (69, 5.0, LENIENT, False),
        (100, 7.6, LENIENT, False),
        (1, 500.0, None, True),
    ],
)
def test_goal_requires_rate_and_p99(
    transactions: int, commit_ms: float, goal: TransactionGoal | None, expected: bool
) -> None:
    kafka = subject(100, 5.0, is_kafka=True)
    chronik = subject(transactions, commit_ms, goal)
    assert is_met(chronik, [chronik, kafka], RECORDS) is expected


def test_goal_applies_only_to_kafka_of_same_cluster_size() -> None:
    kafka = subject(100, 5.0, nodes=3, is_kafka=True)
    chronik = subject(1, 500.0, STRICT)
    assert is_met(chronik, [chronik, kafka], RECORDS)
    assert is_met(kafka, [chronik, kafka], RECORDS)


def test_transactions_table_marks_missed_goals() -> None:
    measured = [subject(120, 4.0, STRICT), subject(80, 4.0, STRICT), subject(80, 4.0), subject(100, 5.0, is_kafka=True)]
    rows = build_table(measured, RECORDS).rows
    assert [row[-1] for row in rows] == ["met", "**missed**", None, None]
    assert rows[0][7:9] == ["1.20", "0.80"]
    assert rows[0][1:4] == [240, 120, 1200]


def test_transaction_subjects_have_kafka_peers_of_same_size() -> None:
    assert [(each.nodes, each.goal, each.is_kafka) for each in create_subjects(with_kafka=True)] == [
        (1, STRICT, False), (3, LENIENT, False), (3, None, False), (1, None, True), (3, None, True)
    ]  # fmt: skip
    assert not [each for each in create_subjects(with_kafka=False) if each.is_kafka]
