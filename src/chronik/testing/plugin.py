"""Pytest plugin with fixtures for brokers, topics and clusters.

It works with xdist: every worker has its own broker. Chronik's modules are imported when a fixture is used.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from chronik.testing.broker import Broker
    from chronik.testing.cluster import Cluster
    from chronik.testing.secured import SecuredBroker

LAST_REQUESTS_SHOWN = 20
TOPIC_NAME_CHARACTERS_MAX = 200  # below Kafka's 249, leaving space for a unique suffix

_brokers_key = pytest.StashKey["list[Broker]"]()
_started_key = pytest.StashKey[float]()


class BrokerFactory(Protocol):
    """A function that starts a broker."""

    def __call__(self, **config: Any) -> Broker: ...


class ClusterFactory(Protocol):
    """A function that creates a cluster."""

    def __call__(self, nodes: int = 3, *, start: bool = True, links: bool = False, **config: Any) -> Cluster: ...


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_brokers_key] = []
    config.addinivalue_line(
        "markers", "chronik_topic(partitions=1, configs=None): options of the topic of the fixture chronik_topic"
    )
    config.addinivalue_line(
        "markers", "chronik_users(alice='wonderland', …): users and passwords for the fixture chronik_secured_broker"
    )


@pytest.fixture(scope="session")
def chronik_broker_config() -> Mapping[str, Any]:
    """Config keys of the fixture `chronik_broker`; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def chronik_broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    chronik_broker_config: Mapping[str, Any],
) -> Iterator[Broker]:
    """A broker shared by all tests of the session (per xdist worker).

    Injected faults are removed after each test; data is kept.
    """
    from chronik.testing.broker import Broker

    with Broker(tmp_path_factory.mktemp("chronik-broker"), **chronik_broker_config) as broker:
        brokers = request.config.stash[_brokers_key]
        brokers.append(broker)
        yield broker
        brokers.remove(broker)


@pytest.fixture
def chronik_topic(request: pytest.FixtureRequest, chronik_broker: Broker) -> str:
    """The name of a new topic on the shared broker."""
    marker = request.node.get_closest_marker("chronik_topic")
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-")[:TOPIC_NAME_CHARACTERS_MAX]
    name = f"{readable}-{secrets.token_hex(4)}"
    chronik_broker.create_topic(name, **(marker.kwargs if marker else {}))
    return name


@pytest.fixture
def chronik_registry(chronik_broker: Broker) -> dict[str, str]:
    """The settings of the shared broker's schema registry, for `SchemaRegistryClient(chronik_registry)`.

    Subjects are kept. With the default strategy, their names start with those of topics, which are unique per test.
    """
    return chronik_broker.registry_settings()


@pytest.fixture
def chronik_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts a broker with the given config keys. The broker is stopped after the test."""
    from contextlib import ExitStack

    from chronik.testing.broker import Broker

    brokers = request.config.stash[_brokers_key]
    with ExitStack() as stack:

        def start(**config: Any) -> Broker:
            broker = stack.enter_context(Broker(tmp_path_factory.mktemp("chronik-broker"), **config))
            brokers.append(broker)
            stack.callback(brokers.remove, broker)
            return broker

        yield start


@pytest.fixture
def chronik_secured_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    """A broker with TLS and SASL for the test. The mark `chronik_users` defines its users."""
    from chronik.testing.secured import SecuredBroker

    marker = request.node.get_closest_marker("chronik_users")
    brokers = request.config.stash[_brokers_key]
    with SecuredBroker(tmp_path_factory.mktemp("chronik-broker"), users=marker.kwargs if marker else {}) as broker:
        brokers.append(broker)
        yield broker
        brokers.remove(broker)


@pytest.fixture
def chronik_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """A function that creates a cluster, ready to use unless `start=False`. It is closed after the test."""
    from contextlib import ExitStack, closing

    from chronik.testing.cluster import Cluster

    brokers = request.config.stash[_brokers_key]
    with ExitStack() as stack:

        def make(nodes: int = 3, *, start: bool = True, links: bool = False, **config: Any) -> Cluster:
            folder = tmp_path_factory.mktemp("chronik-cluster")
            cluster = stack.enter_context(closing(Cluster(nodes, folder, links=links, **config)))
            for node in cluster.nodes.values():
                brokers.append(node)
                stack.callback(brokers.remove, node)
            if start:
                cluster.start()
                cluster.wait_until_ready()
            return cluster

        yield make


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Restore the shared broker for the next test."""
    if "chronik_broker" in getattr(item, "fixturenames", ()):
        for broker in item.config.stash[_brokers_key]:
            broker.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add the brokers' last requests to the report of a failed test."""
    report: pytest.TestReport = yield
    if call.when == "setup":
        item.stash[_started_key] = call.start
    if report.failed:
        for broker in item.config.stash[_brokers_key]:
            if lines := _format_last_requests(broker, item.stash[_started_key]):
                report.sections.append((f"Last requests to {broker!r}", "\n".join(lines)))
    return report


def _format_last_requests(broker: Broker, since: float) -> list[str]:
    from chronik.testing.control import BrokerFailed

    try:
        return [str(seen) for seen in broker.last_requests(LAST_REQUESTS_SHOWN) if seen.answered_at >= since]
    except BrokerFailed as failure:
        return [str(failure)]
