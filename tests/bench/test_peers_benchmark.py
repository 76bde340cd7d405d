"""Results of Chronik compared with Apache Kafka: ratios, tables and images."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers.__main__ import main, parse_arguments
from bench.peers.figures import (
    GROUP,
    KAFKA,
    METRICS,
    OS,
    SIZES,
    PeerMetric,
    PeerResults,
    ServerResults,
    build_table,
    build_tables,
    compute_ratio,
    create_subjects,
    load_results,
    store_results,
)
from bench.peers.plots import IMAGES_BY_NAME, draw_images

RATE = PeerMetric("rate", "Rate", "records/s", more_is_better=True)
TIME = PeerMetric("time", "Time", "ms")
LONGEST = PeerMetric("longest", "Longest", "ms", by_most=True)


def peers() -> PeerResults:
    measured = [
        ServerResults(server, nodes, {metric.key: [value * nodes, value * nodes + 1] for metric in METRICS})
        for nodes in SIZES
        for server, value in ((OS, 100.0), (GROUP, 80.0), (KAFKA, 50.0))
    ]
    return PeerResults("a machine", 0.1, 2, 3.0, "Apache Kafka 4.3.1", measured, "0.6.0")


@pytest.mark.parametrize(
    ("metric", "own", "kafkas", "expected"),
    [
        (RATE, [200.0, 300.0, 100.0], [100.0, 100.0, 100.0], 2.0),
        (TIME, [1.0, 1.0, 4.0], [2.0, 3.0, 2.0], 2.0),
        (LONGEST, [1.0, 10.0], [5.0, 2.0], 0.5),
        (RATE, [], [1.0], None),
        (TIME, [0.0], [1.0], None),
    ],
)
def test_ratio_above_one_means_better_than_kafka(
    metric: PeerMetric, own: list[float], kafkas: list[float], expected: float | None
) -> None:
    found = compute_ratio(
        metric, ServerResults(OS, 1, {metric.key: own}), ServerResults(KAFKA, 1, {metric.key: kafkas})
    )
    assert found == expected


def test_peers_table_has_every_metric_and_ratios_per_flush_setting() -> None:
    one_node, three_nodes = build_tables(peers())
    assert (one_node.title, three_nodes.title) == ("One node", "Three nodes")
    assert three_nodes.headings == ["", KAFKA, OS, "ratio", GROUP, "ratio"]
    assert len(three_nodes.rows) == len(METRICS)
    assert all(len(row) == 6 and None not in row for row in three_nodes.rows)


def test_peers_table_without_kafka_has_no_ratios() -> None:
    without_kafka = peers()
    without_kafka.measured = [each for each in without_kafka.measured if each.server != KAFKA]
    assert "ratio" not in build_table(without_kafka, 1).headings
    assert {subject.server for subject in create_subjects(with_kafka=False)} == {OS, GROUP}


def test_peers_json_round_trips(tmp_path: Path) -> None:
    assert load_results(tmp_path) is None
    store_results(peers(), tmp_path)
    assert load_results(tmp_path) == peers()


def test_images_have_a_bar_and_alternative_text_for_every_value() -> None:
    images = draw_images(peers())
    assert set(images) == set(IMAGES_BY_NAME)
    titles_in_images = set()
    for text in images.values():
        root = ElementTree.fromstring(text)
        description = root.findtext("{http://www.w3.org/2000/svg}desc") or ""
        titles = {metric.title for metric in METRICS if f"{metric.title}, one node:" in description}
        bars = len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) - 1
        assert bars == len(titles) * len(SIZES) * 3
        titles_in_images |= titles
    assert titles_in_images == {metric.title for metric in METRICS}


def test_peers_default_arguments() -> None:
    arguments = parse_arguments([])
    assert (arguments.rounds, arguments.keep, arguments.nodes) == (5, False, None)


@pytest.mark.slow
def test_small_run_measures_every_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_arguments = [
        "--rounds",
        "1",
        "--seconds",
        "0.05",
        "--trips",
        "20",
        "--starts",
        "1",
        "--nodes",
        "1",
        "--without-kafka",
    ]
    assert main([*command_arguments, "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(METRICS)
    assert all(cell.strip() for line in lines[2:] for cell in line.split("|")[1:-1])
