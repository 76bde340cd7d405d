"""Two standalone nodes in the test process, and `chronik schemas` in the test process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronik.cli.main import main
from tests.api.authorizing_node import AuthorizingNode
from tests.cli.command_line import CommandResult

Schemas = Callable[..., CommandResult]
"""Runs `chronik schemas` with the arguments."""


@contextmanager
def open_node(folder: Path) -> Iterator[AuthorizingNode]:
    started = AuthorizingNode(folder, "127.0.0.1:0", **{"authorizer.class.name": ""})
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AuthorizingNode]:
    with open_node(tmp_path / "node") as started:
        yield started


@pytest.fixture
def other_node(tmp_path: Path) -> Iterator[AuthorizingNode]:
    with open_node(tmp_path / "other") as started:
        yield started


def get_url(node: AuthorizingNode) -> str:
    return f"http://{node.http}/registry"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Schemas:
    for name in ("CHRONIK_REGISTRY_URL", "CHRONIK_HTTP_TOKEN", "CHRONIK_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path, node: AuthorizingNode | None = None) -> CommandResult:
        target = () if node is None else ("--registry", get_url(node))
        code = main(["schemas", *map(str, arguments), *target])
        output = capsys.readouterr()
        return CommandResult(code, output.out, output.err)

    return run
