"""Results of benchmarks as tables, their JSON files, and the pages that are generated from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers.figures import GROUP, KAFKA, METRICS, NAME, OS, SIZES, PeerResults, ServerResults, store_results
from bench.peers.plots import IMAGES_BY_NAME
from bench.results import DIRECTORY, BenchmarkRun, ResultTable, load_tables, results_file, store_tables
from tools.docs.benchmark_pages import (
    BEGIN,
    END,
    HEADLINES,
    IMAGES,
    NO_RESULTS,
    find_figures,
    format_results,
    generate_files,
    keep_tables,
)

RUN = BenchmarkRun("a machine", "1.2.3", "5 rounds.", 0.25)
LATER = BenchmarkRun("another machine", "1.2.4")
TABLE = ResultTable("Trips", ["", "trips", "p50 ms", "empty", ""], [["a", 20_000, 0.25, None, "met"]])
PAGE = f"# A title\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with empty pages of all benchmarks that have headlines."""
    (tmp_path / DIRECTORY).mkdir(parents=True)
    for name in {"README", *(headline.page for headline in HEADLINES)}:
        (tmp_path / DIRECTORY / f"{name}.md").write_text(PAGE, encoding="utf-8")
    return tmp_path


def read_page(root: Path, name: str) -> str:
    return (root / DIRECTORY / f"{name}.md").read_text(encoding="utf-8")


def test_table_is_formatted_without_empty_columns() -> None:
    header, _, row = TABLE.to_markdown().splitlines()
    assert [cell.strip() for cell in header.split("|")[1:-1]] == ["", "trips", "p50 ms", ""]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["a", "20,000", "0.25", "met"]


def test_cell_is_found_by_row_and_heading() -> None:
    assert TABLE.find("a", "trips") == 20_000
    assert TABLE.find("b", "trips") is None
    assert TABLE.find("a", "p99 ms") is None


def test_stored_table_replaces_table_with_same_title_only(tmp_path: Path) -> None:
    other = ResultTable("Other", ["", "value"], [["b", 1.5]])
    store_tables("tails", RUN, [TABLE, other], tmp_path)
    store_tables("tails", LATER, [ResultTable("Trips", [""], [["c"]])], tmp_path)
    trips, unchanged = load_tables("tails", tmp_path)
    assert (trips.rows, trips.run) == ([["c"]], LATER)
    assert (unchanged.rows, unchanged.run) == ([["b", 1.5]], RUN)


def test_json_file_has_one_line_per_row_and_rounded_values(tmp_path: Path) -> None:
    store_tables("tails", RUN, [ResultTable("Trips", ["", "ms"], [["a", 1 / 3], ["b", None]])], tmp_path)
    lines = (tmp_path / results_file("tails")).read_text(encoding="utf-8").splitlines()
    assert '    ["a", 0.333333],' in lines
    assert '    ["b", null]' in lines


def test_keep_replaces_results_of_page_and_keeps_its_text(root: Path) -> None:
    keep_tables("tails", RUN, [TABLE], root)
    page = read_page(root, "tails")
    assert page.startswith(f"# A title\n\nbefore\n\n{BEGIN}\n\n### Trips\n\nMeasured with Chronik 1.2.3 on a machine;")
    assert page.endswith(f"|\n\n{END}\n\nafter\n")
    assert "old" not in page
    assert generate_files(root)[DIRECTORY / "tails.md"] == page


def test_run_is_described_once_for_consecutive_tables(root: Path) -> None:
    store_tables("tails", RUN, [TABLE, ResultTable("More", [""], [["c"]])], root)
    store_tables("tails", LATER, [ResultTable("Last", [""], [["d"]])], root)
    results = format_results("tails", root)
    assert results.count("on a machine; load average before the run: 0.25. 5 rounds.") == 1
    assert results.count("Measured with Chronik 1.2.4 on another machine.") == 1


def test_page_without_results_says_so(root: Path) -> None:
    assert f"{BEGIN}\n\n{NO_RESULTS}\n\n{END}" in generate_files(root)[DIRECTORY / "tails.md"]


def test_index_shows_stored_headlines_with_page_titles(root: Path) -> None:
    headline = next(headline for headline in HEADLINES if headline.page == "tails")
    assert find_figures(headline, root) == (None, None)
    assert headline.baseline is not None
    rows: list[list[str | int | float | None]] = [[headline.chronik.row, 45.25], [headline.baseline.row, 61.5]]
    keep_tables("tails", RUN, [ResultTable(headline.table, ["", headline.chronik.heading], rows)], root)
    assert find_figures(headline, root) == (45.25, 61.5)
    (line,) = [line for line in read_page(root, "README").splitlines() if headline.what in line]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["45.25", "61.5 (Apache Kafka)", "[A title](tails.md)"]


def test_page_of_comparison_with_kafka_has_tables_and_images(root: Path) -> None:
    measured = [
        ServerResults(server, nodes, {metric.key: [float(nodes)] for metric in METRICS})
        for nodes in SIZES
        for server in (OS, GROUP, KAFKA)
    ]
    store_results(PeerResults("a machine", 0.1, 1, 3.0, "Apache Kafka 4.3.1", measured, "1.2.3"), root)
    files = generate_files(root)
    page = files[DIRECTORY / f"{NAME}.md"]
    assert all(f"](../../images/{name})" in page and IMAGES / name in files for name in IMAGES_BY_NAME)
    assert "### One node" in page
    assert "### Three nodes" in page
    assert all(find_figures(headline, root)[0] is not None for headline in HEADLINES if headline.page == NAME)
