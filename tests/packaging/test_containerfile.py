"""The Containerfile: it copies existing files, and runs a node without root and with a health check.

No container engine is needed: its instructions are parsed and run as plain processes.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient
from chronik.config import load_config
from chronik.testing.ports import HOST, ReservedPorts
from tests.cli.command_line import TIMEOUT_S, environment
from tests.packaging.build_steps import ROOT, wait_for_address
from tests.packaging.node_process import replace_paths, run_node

FILE = ROOT / "packaging" / "Containerfile"
Instruction = tuple[str, str]


def stages() -> list[list[Instruction]]:
    """Return the instructions of each build stage."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def last_value(word: str) -> str:
    """Return the last value of an instruction in the final stage."""
    return [rest for name, rest in stages()[-1] if name == word][-1]


def copies() -> Iterator[tuple[str, str]]:
    """Yield the sources and targets that are copied from the repository."""
    for stage in stages():
        for word, rest in stage:
            *sources, target = rest.split()
            if word == "COPY" and not rest.startswith("--from="):
                yield from ((source, target) for source in sources)


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(last_value("ENV")))


def parse_exec_form(word: str) -> list[str]:
    """Return a value in exec form, which involves no shell (a shell would not forward signals)."""
    found: list[str] = json.loads(last_value(word).rpartition("CMD ")[2])
    return found


def is_ignored(path: str) -> bool:
    """Return whether .dockerignore ignores the path; the last matching line counts."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and (fnmatch(path, pattern) or path.startswith(f"{pattern}/")):
            ignored = not line.startswith("!")
    return ignored


def test_containerfile_is_parsed() -> None:
    building = {"FROM", "WORKDIR", "COPY", "RUN"}
    running = {"ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert [{word for word, _ in stage} for stage in stages()] == [building, building | running]


def test_copied_files_exist_and_are_not_ignored() -> None:
    sources = [source for source, _ in copies()]
    assert len(sources) > 5
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if is_ignored(source)] == []
    assert is_ignored(".venv")
    assert is_ignored("tests")


def test_files_needed_for_build_are_copied() -> None:
    """Contains everything that pyproject.toml and setup.py read."""
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src"} <= {source for source, _ in copies()}


def test_image_runs_without_root_and_stores_data_in_volume() -> None:
    user, _, group = last_value("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    [volume] = parse_exec_form("VOLUME")
    config = load_config(ROOT / "packaging" / "container" / "node.toml", {})
    assert config.data_dir.is_relative_to(volume)
    assert config.data_dir != Path(volume), "a volume may hold a lost+found"
    assert f"--owner chronik --group chronik --mode 0700 {volume}" in last_value("RUN")


def test_exposed_ports_match_config() -> None:
    config = load_config(ROOT / "packaging" / "container" / "node.toml", {})
    assert config.http is not None
    assert last_value("EXPOSE").split() == [str(config.kafka.port), str(config.http.port)]
    assert config.http.host == HOST, "exposing it requires a token, which the user sets"


@pytest.mark.slow
def test_image_command_runs_node_with_health_check(tmp_path: Path) -> None:
    """Run it with its own files, but with another data directory and other ports from the environment."""
    places = {target: str(ROOT / source) for source, target in copies()} | {"/opt/chronik/bin/python": sys.executable}
    program, *words = parse_exec_form("ENTRYPOINT") + parse_exec_form("CMD")
    assert program == "/opt/chronik/bin/chronik"
    reserved = ReservedPorts(2)
    kafka, http = (f"{HOST}:{port}" for port in reserved.ports)
    variables_of_test = {name: places.get(value, value) for name, value in variables().items() if name != "PATH"}
    variables_of_test |= {"CHRONIK_DATA_DIR": str(tmp_path / "data"), "CHRONIK_KAFKA": kafka, "CHRONIK_HTTP": http}

    def health() -> int:
        words = replace_paths(parse_exec_form("HEALTHCHECK"), places)
        return subprocess.run(
            words, env=environment(None) | variables_of_test, timeout=TIMEOUT_S, check=False
        ).returncode

    assert health() == 1
    with run_node(words, tmp_path, **variables_of_test) as process:
        address = wait_for_address(tmp_path / "log", process)
        assert address == kafka
        assert health() == 0
        with ClusterClient(address) as cluster:
            [broker] = cluster.metadata([]).brokers
            assert (broker.host, broker.port) == ("localhost", 9092), "as in its config file"
        process.send_signal(getattr(signal, last_value("STOPSIGNAL")))
        assert process.wait(TIMEOUT_S) == 0
    assert health() == 1
