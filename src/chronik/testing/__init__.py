"""Real brokers for tests: `with Broker() as broker: …` and `with Cluster(3) as cluster: …`, or the pytest fixtures of
`chronik.testing.plugin`.

Nothing is imported before it is used: pytest loads the plugin in every run, also where no test wants a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronik.testing.broker import Broker
    from chronik.testing.cluster import Cluster, ClusterNode
    from chronik.testing.control import BrokerFailed
    from chronik.testing.secured import SecuredBroker
    from chronik.testing.seen import SeenRequest

__all__ = ["Broker", "BrokerFailed", "Cluster", "ClusterNode", "SecuredBroker", "SeenRequest"]

_HOMES = {
    "Broker": "broker",
    "BrokerFailed": "control",
    "Cluster": "cluster",
    "ClusterNode": "cluster",
    "SecuredBroker": "secured",
    "SeenRequest": "seen",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
