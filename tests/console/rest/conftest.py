"""An in-process cluster of one node with an authorizer and users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.admin.users import first_user
from chronik.config import Address, Peer
from chronik.metadata.levels import HIGHEST, level_of
from chronik.testing.ports import ReservedPorts
from tests.api.guarded import GuardedNode
from tests.console.rest.asking import Browser

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    folder: Path = tmp_path_factory.mktemp("node")
    reserved = ReservedPorts(1)
    me = Peer(1, Address("127.0.0.1", 0), Address("127.0.0.1", reserved.ports[0]))
    configs = {"super.users": "User:root", "connection.failed.authentication.delay.ms": "1"}
    started = GuardedNode(folder, "127.0.0.1:0", [me], **configs)
    try:
        started.until(lambda: level_of(started.services.image.features) == HIGHEST and not started.services.is_fenced())
        started.propose(first_user("root", PASSWORD))
        root = logged_in(started, "root")
        for name in ("mallory", "alice"):
            assert root.post("/users", {"name": name, "password": PASSWORD, "iterations": 4096}).status == 201
        yield started
    finally:
        started.close()
        reserved.release()


@pytest.fixture
def root(node: GuardedNode) -> Browser:
    return logged_in(node, "root")


@pytest.fixture
def mallory(node: GuardedNode) -> Browser:
    """A user without any permissions."""
    return logged_in(node, "mallory")


def logged_in(node: GuardedNode, name: str) -> Browser:
    browser = Browser(node.http)
    answer = browser.log_in(name, PASSWORD)
    assert answer.status == 200, answer
    return browser
