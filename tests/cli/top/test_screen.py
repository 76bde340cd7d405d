"""`chronik top` on a terminal, at any size, with and without a terminal."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from chronik.cli.top.frame import Line, Style
from chronik.cli.top.screen import drawn
from tests.cli.running import COMMAND, chronik, environment
from tests.cli.typing import Typing
from tests.cli.watching.one_node import Running, node_here

ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with node_here(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.mark.slow
def test_top_redraws_and_restores_terminal(running: Running) -> None:
    """The command is ended with q, and with SIGINT as by Ctrl-C."""
    for end in ("q", signal.SIGINT):
        command = [*COMMAND, "top", "-b", running.bootstrap, "--http", running.http, "--interval", "0.2"]
        with Typing(command, environment(None) | {"TERM": "xterm"}) as typing:
            before = typing.settings()
            typing.until(ENTERED)
            typing.until("controller: node 1")
            assert typing.settings() != before, "cbreak mode without echo"
            typing.until("(now by traffic)")
            if end == "q":
                typing.type("s")
                typing.until("(now by size)")
                typing.resize(40, 6)
                lines = typing.until("\x1b[J").rsplit("\x1b[H", 1)[-1].split("\r\n")
                while len(lines) != 6:  # a frame of the old size may still arrive
                    lines = typing.until("\x1b[J").rsplit("\x1b[H", 1)[-1].split("\r\n")
                typing.type("q")
                assert typing.code() == 0
            else:
                typing.kill(signal.SIGINT)
                assert typing.code() == 130
            assert typing.seen.count(ENTERED) == typing.seen.count(LEFT) == 1
            assert typing.seen.rstrip().endswith(LEFT)
            assert typing.settings() == before


@pytest.mark.slow
def test_top_prints_one_frame_to_pipe_and_json(running: Running) -> None:
    output = chronik("top", "-b", running.bootstrap, "--interval", "0.1")
    assert "\x1b" not in output.out
    assert output.lines[0].startswith("chronik top ")
    snapshot = chronik("top", "-b", running.bootstrap, "--http", running.http, "--json", "--interval", "0.1").json
    assert [node["id"] for node in snapshot["facts"]["nodes"]] == [1]
    assert snapshot["nodes"][0]["requests_s"] > 0
    assert snapshot["attention"] == []
    assert json.dumps(snapshot)


def test_frame_is_drawn_over_previous_frame() -> None:
    lines = [Line("title", Style.TITLE), Line(""), Line("plain")]
    plain = "\x1b[Htitle\x1b[K\r\n\x1b[K\r\nplain\x1b[K\x1b[J"
    assert drawn(lines, in_colour=False) == plain
    assert drawn(lines, in_colour=True).replace("\x1b[1m", "").replace("\x1b[0m", "") == plain
