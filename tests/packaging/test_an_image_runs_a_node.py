"""packaging/Containerfile: what it copies is there, what it runs is a node, not as root, and its health is seen.
Without a container engine: its words are read, and run as plain processes."""

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

from chronik.client.cluster import Cluster
from chronik.config import load_config
from chronik.testing.ports import HOST, ReservedPorts
from tests.cli.running import TIMEOUT_S, environment
from tests.packaging.building import ROOT, address_in
from tests.packaging.starting import placed, running

FILE = ROOT / "packaging" / "Containerfile"
Instruction = tuple[str, str]


def stages() -> list[list[Instruction]]:
    """The instructions, from each FROM on."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def last(word: str) -> str:
    """The value in the image: that of its last stage."""
    return [rest for name, rest in stages()[-1] if name == word][-1]


def copies() -> Iterator[tuple[str, str]]:
    """What is copied from the repository, and where to."""
    for stage in stages():
        for word, rest in stage:
            *sources, target = rest.split()
            if word == "COPY" and not rest.startswith("--from="):
                yield from ((source, target) for source in sources)


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(last("ENV")))


def listed(word: str) -> list[str]:
    """Of a value that is a list, which no shell comes between: it would not pass signals on."""
    found: list[str] = json.loads(last(word).rpartition("CMD ")[2])
    return found


def is_ignored(path: str) -> bool:
    """By .dockerignore, where the last line that fits counts."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and (fnmatch(path, pattern) or path.startswith(f"{pattern}/")):
            ignored = not line.startswith("!")
    return ignored


def test_it_is_read() -> None:
    building = {"FROM", "WORKDIR", "COPY", "RUN"}
    running = {"ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert [{word for word, _ in stage} for stage in stages()] == [building, building | running]


def test_all_that_it_copies_is_there_and_sent_to_the_builder() -> None:
    sources = [source for source, _ in copies()]
    assert len(sources) > 5
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if is_ignored(source)] == []
    assert is_ignored(".venv")
    assert is_ignored("tests")


def test_all_that_a_build_needs_is_copied() -> None:
    """What pyproject.toml and setup.py read."""
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src"} <= {source for source, _ in copies()}


def test_it_does_not_run_as_root_and_keeps_its_data_in_the_volume() -> None:
    user, _, group = last("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    [volume] = listed("VOLUME")
    config = load_config(ROOT / "packaging" / "container" / "node.toml", {})
    assert config.data_dir.is_relative_to(volume)
    assert config.data_dir != Path(volume), "a volume may hold a lost+found"
    assert f"--owner chronik --group chronik --mode 0700 {volume}" in last("RUN")


def test_its_ports_are_those_of_its_config() -> None:
    config = load_config(ROOT / "packaging" / "container" / "node.toml", {})
    assert config.http is not None
    assert last("EXPOSE").split() == [str(config.kafka.port), str(config.http.port)]
    assert config.http.host == HOST, "to be seen from outside it needs a token, which a person sets"


@pytest.mark.slow
def test_its_command_is_a_node_whose_health_is_seen(tmp_path: Path) -> None:
    """With its own files, and by the environment another folder and other ports than those that may be taken here."""
    places = {target: str(ROOT / source) for source, target in copies()} | {"/opt/chronik/bin/python": sys.executable}
    program, *words = listed("ENTRYPOINT") + listed("CMD")
    assert program == "/opt/chronik/bin/chronik"
    reserved = ReservedPorts(2)
    kafka, http = (f"{HOST}:{port}" for port in reserved.ports)
    own = {name: places.get(value, value) for name, value in variables().items() if name != "PATH"}
    own |= {"CHRONIK_DATA_DIR": str(tmp_path / "data"), "CHRONIK_KAFKA": kafka, "CHRONIK_HTTP": http}

    def health() -> int:
        words = placed(listed("HEALTHCHECK"), places)
        return subprocess.run(words, env=environment(None) | own, timeout=TIMEOUT_S, check=False).returncode

    assert health() == 1
    with running(words, tmp_path, **own) as process:
        address = address_in(tmp_path / "log", process)
        assert address == kafka
        assert health() == 0
        with Cluster(address) as cluster:
            [broker] = cluster.metadata([]).brokers
            assert (broker.host, broker.port) == ("localhost", 9092), "as its file says"
        process.send_signal(getattr(signal, last("STOPSIGNAL")))
        assert process.wait(TIMEOUT_S) == 0
    assert health() == 1
