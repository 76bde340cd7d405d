"""An in-process cluster of one node with an authorizer and users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronik.admin.users import create_first_user_command
from chronik.config import Address, PeerConfig
from chronik.metadata.levels import HIGHEST, get_cluster_level
from chronik.testing.ports import ReservedPorts
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    with start_node_with_users(tmp_path_factory.mktemp("node")) as started:
        yield started


@contextmanager
def start_node_with_users(folder: Path) -> Iterator[AuthorizingNode]:
    """Start a cluster of one node with the super user root and the users mallory and alice, who have no permissions."""
    reserved = ReservedPorts(1)
    me = PeerConfig(1, Address("127.0.0.1", 0), Address("127.0.0.1", reserved.ports[0]))
    configs = {"super.users": "User:root", "connection.failed.authentication.delay.ms": "1"}
    started = AuthorizingNode(folder, "127.0.0.1:0", [me], **configs)
    try:
        started.wait_until(
            lambda: get_cluster_level(started.services.image.features) == HIGHEST and not started.services.is_fenced()
        )
        started.propose(create_first_user_command("root", PASSWORD))
        root = log_in_as(started, "root")
        for name in ("mallory", "alice"):
            assert root.post("/users", {"name": name, "password": PASSWORD, "iterations": 4096}).status == 201
        yield started
    finally:
        started.close()
        reserved.release()


@pytest.fixture
def root(node: AuthorizingNode) -> ApiClient:
    return log_in_as(node, "root")


@pytest.fixture
def mallory(node: AuthorizingNode) -> ApiClient:
    """A user without any permissions."""
    return log_in_as(node, "mallory")


def log_in_as(node: AuthorizingNode, name: str) -> ApiClient:
    browser = ApiClient(node.http)
    answer = browser.log_in(name, PASSWORD)
    assert answer.status == 200, answer
    return browser
