"""`chronik top` on a terminal, at any size, with and without a terminal."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from chronik.cli.top.frame import StyledLine, TextStyle
from chronik.cli.top.screen import render_lines
from tests.cli.command_line import COMMAND, environment, run_chronik
from tests.cli.monitoring.in_process_node import InProcessNode, run_node_in_process
from tests.cli.pseudo_terminal import PseudoTerminal

ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessNode]:
    with run_node_in_process(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.mark.slow
def test_top_redraws_and_restores_terminal(running: InProcessNode) -> None:
    """The command is ended with q, and with SIGINT as by Ctrl-C."""
    for end in ("q", signal.SIGINT):
        command = [*COMMAND, "top", "-b", running.bootstrap, "--http", running.http, "--interval", "0.2"]
        with PseudoTerminal(command, environment(None) | {"TERM": "xterm"}) as typing:
            before = typing.settings()
            typing.wait_for_output(ENTERED)
            typing.wait_for_output("controller: node 1")
            assert typing.settings() != before, "cbreak mode without echo"
            typing.wait_for_output("(now by traffic)")
            if end == "q":
                typing.type("s")
                typing.wait_for_output("(now by size)")
                typing.resize(40, 6)
                lines = typing.wait_for_output("\x1b[J").rsplit("\x1b[H", 1)[-1].split("\r\n")
                while len(lines) != 6:  # a frame of the old size may still arrive
                    lines = typing.wait_for_output("\x1b[J").rsplit("\x1b[H", 1)[-1].split("\r\n")
                typing.type("q")
                assert typing.wait_for_exit() == 0
            else:
                typing.kill(signal.SIGINT)
                assert typing.wait_for_exit() == 130
            assert typing.output.count(ENTERED) == typing.output.count(LEFT) == 1
            assert typing.output.rstrip().endswith(LEFT)
            assert typing.settings() == before


@pytest.mark.slow
def test_top_prints_one_frame_to_pipe_and_json(running: InProcessNode) -> None:
    output = run_chronik("top", "-b", running.bootstrap, "--interval", "0.1")
    assert "\x1b" not in output.out
    assert output.lines[0].startswith("chronik top ")
    snapshot = run_chronik("top", "-b", running.bootstrap, "--http", running.http, "--json", "--interval", "0.1").json
    assert [node["id"] for node in snapshot["facts"]["nodes"]] == [1]
    assert snapshot["nodes"][0]["requests_s"] > 0
    assert snapshot["attention"] == []
    assert json.dumps(snapshot)


def test_frame_is_drawn_over_previous_frame() -> None:
    lines = [StyledLine("title", TextStyle.TITLE), StyledLine(""), StyledLine("plain")]
    plain = "\x1b[Htitle\x1b[K\r\n\x1b[K\r\nplain\x1b[K\x1b[J"
    assert render_lines(lines, use_color=False) == plain
    assert render_lines(lines, use_color=True).replace("\x1b[1m", "").replace("\x1b[0m", "") == plain
