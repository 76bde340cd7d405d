from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from bench.pipeline.__main__ import NAME, SECTIONS
from bench.pipeline.plan import PARTITIONS, ROWS_PER_CALL, fill_topic, generate_events
from bench.pipeline.processes import PeakMemory, list_process_tree, read_pss_bytes, read_tree_cpu_seconds
from bench.results import load_tables
from chronik.bench.statistics import MEGABYTE
from chronik.client.offsets import list_latest_offsets
from chronik.testing import Broker


def test_stored_tables_have_titles_of_sections() -> None:
    titles = [title for title, _ in SECTIONS.values()]
    stored = [table.title for table in load_tables(NAME)]
    assert len(stored) >= 5
    assert stored == [title for title in titles if title in stored], "a new section has no table yet"


def test_generated_events_have_100_bytes_and_differ() -> None:
    values = generate_events(1000, np.random.default_rng(1))["value"].to_pylist()
    assert {len(value) for value in values} == {100}
    assert len(set(values)) == 1000


def test_fill_distributes_records_evenly_over_partitions(chronik_broker: Broker, chronik_topic: str) -> None:
    topic = f"{chronik_topic}-filled"
    fill_topic(chronik_broker.bootstrap, topic, PARTITIONS * ROWS_PER_CALL)
    with chronik_broker.cluster() as cluster:
        ends = list_latest_offsets(cluster, cluster.partitions(topic))
    assert [ends[each] for each in sorted(ends)] == [ROWS_PER_CALL] * PARTITIONS


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="process memory is read from /proc")
def test_peak_memory_and_cpu_include_child_processes() -> None:
    use = "held = b'x' * 60_000_000\nwhile time.process_time() < 0.3: pass"
    hold = f"import time\n{use}\nprint('held', flush=True)\ninput()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with PeakMemory(process.pid) as peak:
            assert len(list_process_tree(process.pid)) == 2
        assert 60 * MEGABYTE < peak.bytes < 200 * MEGABYTE
        assert read_pss_bytes(process.pid) < 60 * MEGABYTE
        assert 0.29 < read_tree_cpu_seconds(process.pid) < 10
        process.communicate("\n")
