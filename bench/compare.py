"""`python -m bench.compare --base COMMIT` (`make compare BASE=COMMIT`): this source compared with an earlier commit.

Each round interleaves three contestants: the commit, the same commit again, and this source. Two runs of the same code
differ by up to a fifth on a shared machine, so ratios are computed within a round and judged by their median. A figure
is a regression only if it is below the limit and below the lower quartile of the commit compared with itself. Ratios
above 1 are improvements.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from bench.cluster.figures import ClusterBenchmarkPlan
from bench.cluster.nodes import replicated_topic, running_cluster
from bench.results import describe_machine
from bench.servers import COMMANDS, HOST, ROOT, BenchmarkServer
from chronik.bench import acks, consume, produce, round_trip
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.consume import ConsumeLoad
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import ensure_topic, generate_name
from chronik.bench.produce import ProduceLoad
from chronik.bench.report import MISSED_LABEL, format_markdown_table, format_number, rotate_servers
from chronik.bench.statistics import MEGABYTE, MILLION, Latency, read_cpu_seconds, read_resident_bytes
from chronik.client.admin import delete_topics
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.testing.cluster import Cluster as Nodes

BASE, BASE_AGAIN, CURRENT = "before", "before, again", "now"
CONTESTANTS: Final = (BASE, BASE_AGAIN, CURRENT)
FLUSHES: Final = ("group", "os")
SIZES: Final = (100, 1000)
PARTITIONS: Final = 6
"""Of a cluster of three nodes, so that each leads two."""
SETTLED_SECONDS: Final = 0.5
LIMIT: Final = 0.95

Values = dict[str, dict[str, list[float]]]
"""Figure → contestant → one value per round."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A figure of both versions, their ratio, and the noise (the base compared with itself)."""

    what: str
    before: float
    now: float
    ratio: float
    itself: float
    itself_low: float
    itself_high: float
    is_worse: bool


def compare_values(what: str, values: dict[str, list[float]], limit: float) -> ComparisonRow:
    ratios = _ratios(what, values[CURRENT], values[BASE])
    itself = _ratios(what, values[BASE_AGAIN], values[BASE])
    low, _, high = quantiles(itself, n=4) if len(itself) > 1 else itself * 3
    ratio = median(ratios)
    return ComparisonRow(
        what,
        median(values[BASE]),
        median(values[CURRENT]),
        ratio,
        median(itself),
        low,
        high,
        is_worse=ratio < limit and ratio < low,
    )


def _ratios(what: str, values: Sequence[float], base: Sequence[float]) -> list[float]:
    is_rate = what.endswith("/s")
    pairs = zip(values, base, strict=True)
    return [value / before if is_rate else before / value for value, before in pairs if value > 0 and before > 0]


class Comparison:
    """Measures the contestants round by round."""

    def __init__(
        self, trees: dict[str, Path], plan: ClusterBenchmarkPlan, trips: int, more_now: Sequence[str] = ()
    ) -> None:
        """Store the settings. `more_now` are additional arguments for the nodes of this source."""
        self._trees = trees
        self._more_arguments = {CURRENT: more_now}
        self._plan = plan
        self._trips = trips
        self.values: Values = defaultdict(lambda: defaultdict(list))

    def _record(self, name: str, what: str, value: float | None) -> None:
        if value is not None:
            self.values[what][name].append(value)

    # One node

    def measure_starts(self, *, with_http: bool = False) -> None:
        """Measure start time and idle memory. `with_http` passes an HTTP address instead of the default."""
        for name in CONTESTANTS:
            self._register_command(name, "group")
            self._start_once(name, with_http)  # compiles the modules, once
        what = "with HTTP, " if with_http else ""
        for rotated in self._rounds(f"{what}starts"):
            for name in rotated:
                start_ms, idle_mb = self._start_once(name, with_http)
                self._record(name, f"{what}start, ms", start_ms)
                self._record(name, f"{what}idle memory, MB", idle_mb)

    def _start_once(self, name: str, with_http: bool) -> tuple[float, float]:
        with BenchmarkServer(name, self._plan.directory, with_http=with_http) as server:
            time.sleep(SETTLED_SECONDS)
            return 1000 * server.first_response_seconds, read_resident_bytes(server.pid) / MEGABYTE

    def _register_command(self, name: str, flush: str) -> None:
        COMMANDS[name] = _command(self._trees[name], flush, self._more_arguments.get(name, ()))

    def measure_one_node(self, flush: str) -> None:
        with ExitStack() as stack:
            servers = {}
            for name in CONTESTANTS:
                self._register_command(name, flush)
                servers[name] = stack.enter_context(BenchmarkServer(name, self._plan.directory))
            for rotated in self._rounds(f"one node, {flush}"):
                for size in SIZES:
                    for name in rotated:
                        self._load(name, servers[name], flush, size)
                for name in rotated:
                    latency = self._round_trips(servers[name])
                    self._record(name, f"one node, {flush}, round trip, p50, ms", latency.p50_ms)
                    self._record(name, f"one node, {flush}, round trip, p99, ms", latency.p99_ms)

    def _load(self, name: str, server: BenchmarkServer, flush: str, size: int) -> None:
        topic, what = generate_name("load"), f"one node, {flush}, {size} B"
        with ClusterClient(server.bootstrap, client_id=CLIENT_ID) as cluster:
            ensure_topic(cluster, topic, partitions=1)
            os.sync()  # an earlier load's dirty pages must not slow this one
            records = self._plan.megabytes * MEGABYTE // size
            load = ProduceLoad(server.bootstrap, topic, records, size, broker_pid=server.pid)
            produced = produce.measure(load)
            consumed = consume.measure(ConsumeLoad(server.bootstrap, topic, 1, records, server.pid))
            delete_topics(cluster, [topic])
        self._record(name, f"{what}, produced, records/s", produced.records_per_second)
        self._record(name, f"{what}, produced, CPU, s/M", produced.broker_cpu_s_per_million)
        self._record(name, f"{what}, consumed, records/s", consumed.records_per_second)
        self._record(name, f"{what}, consumed, CPU, s/M", consumed.broker_cpu_s_per_million)

    def _round_trips(self, server: BenchmarkServer) -> Latency:
        topic = generate_name("trips")
        with ClusterClient(server.bootstrap, client_id=CLIENT_ID) as cluster:
            ensure_topic(cluster, topic, partitions=1)
            latency_result = round_trip.measure(server.bootstrap, topic, self._trips).latency
            delete_topics(cluster, [topic])
        return latency_result

    # Three nodes

    def measure_three_nodes(self, flush: str) -> None:
        with ExitStack() as stack:
            clusters = {}
            for name in CONTESTANTS:
                with _with_python_path(self._trees[name]):
                    clusters[name] = stack.enter_context(running_cluster(self._plan, flush=flush))
            for rotated in self._rounds(f"three nodes, {flush}"):
                for size in SIZES:
                    for name in rotated:
                        self._replicate(name, clusters[name], flush, size)
                for name in rotated:
                    with replicated_topic(clusters[name], "acks", 1) as topic:
                        latency = acks.measure(clusters[name].bootstrap, topic, self._trips).latency
                    self._record(name, f"three nodes, {flush}, acknowledged, p50, ms", latency.p50_ms)
                    self._record(name, f"three nodes, {flush}, acknowledged, p99, ms", latency.p99_ms)

    def _replicate(self, name: str, nodes: Nodes, flush: str, size: int) -> None:
        what = f"three nodes, {flush}, {size} B, acks=all"
        with replicated_topic(nodes, "copies", PARTITIONS) as topic:
            os.sync()
            records = self._plan.megabytes * MEGABYTE // size
            cpu_before_s = _cpu_seconds(nodes)
            load = ProduceLoad(nodes.bootstrap, topic, records, size, "all")
            self._record(name, f"{what}, produced, records/s", produce.measure(load).records_per_second)
            self._record(name, f"{what}, CPU of all, s/M", (_cpu_seconds(nodes) - cpu_before_s) / records * MILLION)

    def _rounds(self, what: str) -> Iterator[list[str]]:
        for round_number in range(self._plan.rounds):
            print(f"== {what}: round {round_number + 1} of {self._plan.rounds}", file=sys.stderr, flush=True)
            yield rotate_servers(CONTESTANTS, round_number)


def _cpu_seconds(nodes: Nodes) -> float:
    return sum(read_cpu_seconds(node.pid) for node in nodes.live_nodes)


def _command(tree: Path, flush: str, more_arguments: Sequence[str]) -> Callable[[Path, int], list[str]]:
    """Return a function that builds the start command of a source tree, independent of the installed package."""

    def arguments(folder: Path, port: int) -> list[str]:
        python = ["env", f"PYTHONPATH={tree / 'src'}", sys.executable, "-P", "-m", "chronik"]
        location = ["--data", str(folder), "--kafka", f"{HOST}:{port}"]
        return [*python, "start", *location, "--flush", flush, "--log-level", "warning", *more_arguments]

    return arguments


@contextmanager
def _with_python_path(tree: Path) -> Iterator[None]:
    """Set PYTHONPATH for processes that are started inside the `with` block."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tree / "src")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def checkout_worktree(commit: str, parent: Path) -> Iterator[Path]:
    """Check out a commit in a temporary git worktree. Raises BenchFailed."""
    with tempfile.TemporaryDirectory(prefix="before-", dir=parent) as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*git_arguments: str) -> None:
    completed = subprocess.run(["git", "-C", str(ROOT), *git_arguments], capture_output=True, text=True, check=False)
    if completed.returncode:
        raise BenchmarkError(f"git {git_arguments[0]}: {completed.stderr.strip()}")


SECTIONS: Final[dict[str, Callable[[Comparison], None]]] = {
    "start": Comparison.measure_starts,
    "start-http": partial(Comparison.measure_starts, with_http=True),
    **{f"one-{flush}": partial(Comparison.measure_one_node, flush=flush) for flush in FLUSHES},
    **{f"three-{flush}": partial(Comparison.measure_three_nodes, flush=flush) for flush in FLUSHES},
}


def format_comparison(rows: Sequence[ComparisonRow], base: str, rounds: int, load_before: float) -> str:
    head = ["", base, "now", "ratio", f"{base} compared with itself", "its quartiles", ""]
    lines = [
        [
            row.what,
            format_number(row.before),
            format_number(row.now),
            f"{row.ratio:.3f}",
            f"{row.itself:.3f}",
            f"{row.itself_low:.3f} to {row.itself_high:.3f}",
            MISSED_LABEL if row.is_worse else "met",
        ]
        for row in rows
    ]
    summary = (
        f"Measured on {describe_machine()}; load before: {load_before:.2f}. Medians of {rounds} interleaved rounds."
    )
    return f"{summary} More than 1 is better.\n\n{format_markdown_table(head, lines)}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--base", required=True, metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    parser.add_argument("--megabytes", type=int, default=200, metavar="N", help="megabytes written per measurement")
    parser.add_argument("--trips", type=int, default=500, metavar="N", help="round trips per round")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="RATIO", help="a lower ratio is a regression")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--more-now", default="", metavar="WORDS", help="arguments of this source's node: '--http off'")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data and JSON"
    )
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    """Run the comparison and return the exit code: 0 if no figure has regressed."""
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    plan = ClusterBenchmarkPlan(folder, arguments.rounds, 0, 0, 0, 0, arguments.megabytes)
    load_before = os.getloadavg()[0]
    with checkout_worktree(arguments.base, folder) as before:
        comparison = Comparison(
            {BASE: before, BASE_AGAIN: before, CURRENT: ROOT}, plan, arguments.trips, arguments.more_now.split()
        )
        for section in arguments.only or SECTIONS:
            SECTIONS[section](comparison)
    rows = [compare_values(what, values, arguments.limit) for what, values in comparison.values.items()]
    report_json: dict[str, Any] = {
        "base": arguments.base,
        "rows": [asdict(row) for row in rows],
        "values": comparison.values,
    }
    (folder / "compare.json").write_text(json.dumps(report_json, indent=2) + "\n", encoding="utf-8")
    print(format_comparison(rows, arguments.base, plan.rounds, load_before))
    return 1 if any(row.is_worse for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
