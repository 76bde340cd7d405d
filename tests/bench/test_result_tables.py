"""The tables of single benchmarks have the titles and headings of the stored tables, so that a run replaces them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from bench import fairness, security, tabs, tails, transactions
from bench.__main__ import NAME as SINGLE_NODE
from bench.cluster.__main__ import SECTIONS as CLUSTER_SECTIONS
from bench.fairness import ATTACKED, ATTACKED_TEN, BURNED, FairnessSubject, PhaseResult
from bench.kafka_comparison import RunningServer
from bench.report_tables import build_tables as build_single_node_tables
from bench.report_tables import evaluate_targets
from bench.results import ResultTable, build_target_table, load_tables
from bench.security import JAVA, KAFKA, KAFKA_TLS, LOGIN, PLAIN, TLS, WITH_ACLS, ListenerBenchmark, compare_listeners
from bench.tabs import TabsSubject
from bench.workloads import CHRONIK, SERVERS, SIZES, IdleResult, WorkloadResults
from chronik.bench.consume import ConsumeResult
from chronik.bench.metadata import MetadataResult
from chronik.bench.produce import ProduceResult
from chronik.bench.round_trip import RoundTripResult
from chronik.bench.statistics import MEGABYTE, Latency
from chronik.bench.topics import TopicsResult

LATENCY = Latency(1.0, 2.0, 3.0, 4.0)


def start(directory: Path) -> AbstractContextManager[RunningServer]:
    raise AssertionError("not started here")


def titles_and_headings(tables: Sequence[ResultTable]) -> list[tuple[str, list[str]]]:
    assert all(len(row) == len(table.headings) for table in tables for row in table.rows)
    return [(table.title, table.headings) for table in tables]


def single_node_tables() -> list[ResultTable]:
    figures = WorkloadResults()
    for size in SIZES:
        for name in SERVERS:
            figures.produced[name, size].append(ProduceResult(1000, size, 1.0, 1e6, 100.0, 0.5, 0.1, LATENCY))
        for name in CHRONIK:
            figures.consumed[name, size].append(ConsumeResult(1000, 1.0, 1e6, 100.0, 0.5, 0.1))
    for name in CHRONIK:
        figures.trips[name].append(RoundTripResult(10, 100, LATENCY, 0, 0))
    figures.topics = [TopicsResult("one request", 1000, 0.1, 10_000.0)]
    figures.metadata = [MetadataResult(1000, 100, 5000.0, LATENCY)]
    idle = IdleResult([160.0, 170.0], 35.0, 0.0)
    return build_single_node_tables(figures, idle, evaluate_targets(figures, idle))


def security_tables() -> list[ResultTable]:
    names = (PLAIN, security.AGAIN, TLS, LOGIN, WITH_ACLS, KAFKA, KAFKA_TLS)
    figures = ["produce, MB/s", "fetch, MB/s"]
    figures += ["produce, records per broker CPU second", "fetch, records per broker CPU second"]
    listeners = [ListenerBenchmark(name, "", 1, figures={what: [1.0, 2.0] for what in figures}) for name in names]
    for listener in listeners:
        if listener.name in (PLAIN, TLS, KAFKA, KAFKA_TLS):
            listener.figures[JAVA] = [3.0, 4.0]
    return security.build_tables(listeners, compare_listeners(listeners))


def tabs_subjects() -> dict[str, TabsSubject]:
    used, idle = (TabsSubject(cast(Any, None), cast(Any, None), [0.001, 0.002]) for _ in range(2))
    used.cpu, used.memory = [0.0, 0.9], [40 * MEGABYTE, 40 * MEGABYTE, 41 * MEGABYTE]
    idle.cpu, idle.memory = [0.0, 0.6], [40 * MEGABYTE, 40 * MEGABYTE, 40 * MEGABYTE]
    return {tabs.WITH: used, tabs.WITHOUT: idle}


@pytest.mark.parametrize(("name", "build"), [(SINGLE_NODE, single_node_tables), (security.NAME, security_tables)])
def test_tables_match_stored_tables(name: str, build: Callable[[], list[ResultTable]]) -> None:
    assert titles_and_headings(build()) == titles_and_headings(load_tables(name))


@pytest.mark.parametrize("name", [tails.NAME, transactions.NAME])
def test_stored_tables_have_as_many_cells_as_headings(name: str) -> None:
    assert titles_and_headings(load_tables(name))


def test_stored_cluster_tables_have_titles_of_sections() -> None:
    titles = [title for title, _ in titles_and_headings(load_tables("cluster"))]
    assert titles
    assert set(titles) <= {title for title, _ in CLUSTER_SECTIONS.values()}


def test_cost_of_tabs_is_the_difference_between_the_nodes() -> None:
    subjects = tabs_subjects()
    table, targets = tabs.build_table(subjects, 60.0), tabs.evaluate_targets(subjects, 60.0)
    stored = titles_and_headings(load_tables(tabs.NAME))
    assert titles_and_headings([table, build_target_table(targets)]) == stored
    assert table.find(tabs.WITH, "CPU, % of a core") == pytest.approx(1.5)
    assert [target.measured for target in targets] == [pytest.approx(0.5), pytest.approx(1.0)]
    assert [target.met for target in targets] == [True, False]


def test_fairness_tables_have_retained_throughput_and_goals() -> None:
    subjects = [FairnessSubject("Chronik, os", start), FairnessSubject("Apache Kafka", start, is_kafka=True)]
    for subject, attacked in zip(subjects, (600.0, 100.0), strict=True):
        subject.phases[ATTACKED] = [PhaseResult([attacked], [0.1])]
        subject.phases[BURNED] = [PhaseResult([1000.0], [0.01])]
        subject.phases[ATTACKED_TEN] = [PhaseResult([attacked, attacked / 4], [0.1])]
        subject.responses = {ATTACKED: [30.0], ATTACKED_TEN: [20.0]}
        subject.attacker_cpu, subject.recovery_seconds = [0.04], [0.5]
    throughput, latency, targets = fairness.build_tables(subjects, fairness.evaluate_goals(subjects))
    titles_and_headings([throughput, latency, targets])
    assert throughput.find("Chronik, os", "retained, %") == pytest.approx(60.0)
    assert latency.find("Apache Kafka, burner", "p50 ms") == pytest.approx(10.0)
    assert [row[-1] for row in targets.rows] == ["met", "**missed**", "met", "met"]
