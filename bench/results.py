"""Results of benchmarks as tables, and the JSON files in docs/internals/benchmarks that store them."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import chronik
from bench.servers import ROOT
from chronik.bench.report import MISSED_LABEL, BenchmarkTarget, format_markdown_table, format_number

DIRECTORY: Final = Path("docs", "internals", "benchmarks")

Cell = str | int | float | None


class BenchmarkRun(msgspec.Struct, omit_defaults=True):
    """Where and how a table was measured."""

    machine: str
    version: str
    """The version of Chronik."""
    settings: str = ""
    """Complete sentences, such as "Medians of 5 interleaved rounds."."""
    load_before: float | None = None
    """The load average before the run. Above a few tenths, other processes used the machine."""

    def describe(self) -> str:
        load = "" if self.load_before is None else f"; load average before the run: {self.load_before:.2f}"
        return f"Measured with Chronik {self.version} on {self.machine}{load}. {self.settings}".rstrip()


class ResultTable(msgspec.Struct, omit_defaults=True):
    """A table of results. The first cell of a row is its name."""

    title: str
    headings: list[str]
    rows: list[list[Cell]]
    run: BenchmarkRun | None = None
    """Set when the table is stored."""

    def to_markdown(self) -> str:
        """Format the table without its empty columns."""
        used = [column for column in range(len(self.headings)) if any(row[column] is not None for row in self.rows)]
        rows = [[_format_cell(row[column]) for column in used] for row in self.rows]
        return format_markdown_table([self.headings[column] for column in used], rows)

    def find(self, row: str, heading: str) -> Cell:
        """Return a cell, or None if the table has no such row or column."""
        cells = next((cells for cells in self.rows if cells[0] == row), None)
        return cells[self.headings.index(heading)] if cells and heading in self.headings else None


class StoredResults(msgspec.Struct):
    """The content of a JSON file."""

    tables: list[ResultTable]


def add_keep_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help=f"store the results in {DIRECTORY} and update the page")


def format_verdict(is_met: bool) -> str:
    return "met" if is_met else MISSED_LABEL


def describe_machine() -> str:
    model = platform.machine()  # platform.processor() would start a process
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores of {model}, {system}, Python {platform.python_version()}"


def describe_run(settings: str = "", load_before: float | None = None) -> BenchmarkRun:
    """Describe a run of this source on this machine."""
    return BenchmarkRun(describe_machine(), chronik.__version__, settings, load_before)


def build_target_table(targets: Sequence[BenchmarkTarget]) -> ResultTable:
    rows: list[list[Cell]] = [
        [target.what, target.wanted, target.measured, format_verdict(target.met)] for target in targets
    ]
    return ResultTable("Targets", ["", "target", "measured", ""], rows)


def format_report(run: BenchmarkRun, tables: Sequence[ResultTable]) -> str:
    """Format the tables as Markdown, as in the benchmark's page."""
    return "\n\n".join([run.describe(), *(f"### {table.title}\n\n{table.to_markdown()}" for table in tables)])


def results_file(name: str) -> Path:
    """Return the path of a benchmark's JSON file, relative to the repository root."""
    return DIRECTORY / f"{name}.json"


def load_tables(name: str, root: Path = ROOT) -> list[ResultTable]:
    path = root / results_file(name)
    return msgspec.json.decode(path.read_bytes(), type=StoredResults).tables if path.exists() else []


def store_tables(name: str, run: BenchmarkRun, tables: Sequence[ResultTable], root: Path = ROOT) -> None:
    """Replace the stored tables that have the same titles. Other tables stay: sections can be run separately."""
    by_title = {table.title: table for table in load_tables(name, root)}
    for table in tables:
        by_title[table.title] = ResultTable(table.title, table.headings, table.rows, run)
    path = root / results_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(encode(StoredResults(list(by_title.values()))), encoding="utf-8")


def encode(results: msgspec.Struct) -> str:
    return _format_json(round_floats(msgspec.to_builtins(results))) + "\n"


def round_floats(value: Any) -> Any:
    """Round floats to six significant digits, which exceeds the precision of the measurements."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: round_floats(each) for key, each in value.items()}
    return [round_floats(each) for each in value] if isinstance(value, list) else value


def _format_json(value: Any, indent: str = "") -> str:
    """Format JSON with one line per row of a table."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        members = (f"{inner}{_dump(key)}: {_format_json(each, inner)}" for key, each in value.items())
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        return "[\n" + ",\n".join(inner + _format_json(each, inner) for each in value) + f"\n{indent}]"
    return _dump(value)


def _dump(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _format_cell(cell: Cell) -> str:
    return "" if cell is None else format_number(cell)
