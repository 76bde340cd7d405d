"""A standalone node with an authorizer, users and two ports that serve its schema registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.admin.users import create_first_user_command
from tests.api.authorizing_node import AuthorizingNode
from tests.console.registry.registry_api import PASSWORD, RegistryApi
from tests.console.rest.api_client import ApiClient, basic_auth


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    configs = {"super.users": "User:root", "connection.failed.authentication.delay.ms": "1"}
    started = AuthorizingNode(tmp_path_factory.mktemp("node"), "127.0.0.1:0", registry="127.0.0.1:0", **configs)
    try:
        started.propose(create_first_user_command("root", PASSWORD))
        admin = ApiClient(started.http, authorization=basic_auth("root", PASSWORD))
        for name in ("mallory", "alice"):
            assert admin.post("/users", {"name": name, "password": PASSWORD, "iterations": 4096}).status == 201
        yield started
    finally:
        started.close()


@pytest.fixture
def root(node: AuthorizingNode) -> RegistryApi:
    return RegistryApi(node.http, "root")


@pytest.fixture
def mallory(node: AuthorizingNode) -> RegistryApi:
    """A user without any permissions."""
    return RegistryApi(node.http, "mallory")
