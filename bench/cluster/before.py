"""The standalone broker beside itself as it was before it could be part of a cluster, in turn within each round."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.cluster.figures import Figure, Plan
from bench.servers import COMMANDS, HOST, ROOT, Server
from chronik.bench import consume, produce
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.clients import ensure_topic, unique_name
from chronik.bench.consume import ConsumeLoad
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import MEGABYTE, resident_bytes
from chronik.bench.produce import ProduceLoad
from chronik.bench.rounds import in_turn
from chronik.client.admin import delete_topics
from chronik.client.cluster import Cluster

LAST_STANDALONE_COMMIT: Final = "cb5b1fc"
RATIO_LEAST: Final = 0.95
NO_WORSE: Final = 1.05
"""Within five percent: two runs of the very same code differ by as much."""

STARTS_PER_ROUND: Final = 3
LOADS_PER_ROUND: Final = 3
"""A load takes a second, and two loads of the same code differ by a fifth: many pairs tell what one does not."""

SETTLED_SECONDS: Final = 0.5
RECORD_BYTES: Final = 100
BEFORE, NOW = "before", "now"


def measure_before_and_now(plan: Plan) -> list[Figure]:
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    with _worktree(plan.folder) as before:
        COMMANDS[BEFORE], COMMANDS[NOW] = _chronik(before), _chronik(ROOT)
        for name in (BEFORE, NOW):
            _start_once(name, plan)  # it compiles the modules, which happens once
        for number in range(plan.rounds * STARTS_PER_ROUND):
            for name in in_turn((BEFORE, NOW), number):
                started_ms, resident_mb = _start_once(name, plan)
                values[name, "start ms"].append(started_ms)
                values[name, "resident MB"].append(resident_mb)
        with Server(BEFORE, plan.folder) as server_before, Server(NOW, plan.folder) as server_now:
            servers = {BEFORE: server_before, NOW: server_now}
            for server in servers.values():
                _load_once(server, plan)  # every code path has run
            for number in range(plan.rounds * LOADS_PER_ROUND):
                for name in in_turn((BEFORE, NOW), number):
                    produced, consumed = _load_once(servers[name], plan)
                    values[name, "produced"].append(produced)
                    values[name, "consumed"].append(consumed)
    return [
        Figure("standalone, produced records/s, of before", _ratios(values, "produced"), at_least=RATIO_LEAST),
        Figure("standalone, consumed records/s, of before", _ratios(values, "consumed"), at_least=RATIO_LEAST),
        Figure("standalone, time to first answer, of before", _ratios(values, "start ms"), below=NO_WORSE),
        Figure("standalone, idle memory, of before", _ratios(values, "resident MB"), below=NO_WORSE),
        Figure("standalone, produced records/s", values[NOW, "produced"]),
        Figure("standalone, consumed records/s", values[NOW, "consumed"]),
        Figure("standalone, time to first answer, ms", values[NOW, "start ms"]),
        Figure("standalone, idle memory, MB", values[NOW, "resident MB"]),
        Figure(f"standalone at {LAST_STANDALONE_COMMIT}, time to first answer, ms", values[BEFORE, "start ms"]),
        Figure(f"standalone at {LAST_STANDALONE_COMMIT}, idle memory, MB", values[BEFORE, "resident MB"]),
    ]


def _ratios(values: dict[tuple[str, str], list[float]], what: str) -> list[float]:
    return [now / before for now, before in zip(values[NOW, what], values[BEFORE, what], strict=True)]


def _start_once(name: str, plan: Plan) -> tuple[float, float]:
    with Server(name, plan.folder) as server:
        time.sleep(SETTLED_SECONDS)
        return 1000 * server.first_answer_seconds, resident_bytes(server.pid) / MEGABYTE


def _load_once(server: Server, plan: Plan) -> tuple[float, float]:
    topic = unique_name("load")
    with Cluster(server.bootstrap, client_id=CLIENT_ID) as cluster:
        ensure_topic(cluster, topic, partitions=1)
        os.sync()  # what an earlier load left in the page cache must not slow this one
        load = ProduceLoad(server.bootstrap, topic, plan.megabytes * MEGABYTE // RECORD_BYTES, RECORD_BYTES)
        produced = produce.measure(load).records_per_second
        consumed = consume.measure(ConsumeLoad(server.bootstrap, topic, 1, load.records)).records_per_second
        delete_topics(cluster, [topic])
    return produced, consumed


def _chronik(root: Path) -> Callable[[Path, int], list[str]]:
    """Started the same way whichever it is: from its source, and not by what happens to be installed."""

    def arguments(folder: Path, port: int) -> list[str]:
        python = ["env", f"PYTHONPATH={root / 'src'}", sys.executable, "-P", "-m", "chronik"]
        return [*python, "start", "--data", str(folder), "--kafka", f"{HOST}:{port}", "--log-level", "warning"]

    return arguments


@contextmanager
def _worktree(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="before-", dir=parent) as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), LAST_STANDALONE_COMMIT)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"git {words[0]} {words[1]}: {done.stderr.strip()}")
