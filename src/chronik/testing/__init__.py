"""Real brokers for tests: `with Broker() as broker: …`, `with Cluster(3) as cluster: …`, or pytest fixtures.

The fixtures are in `chronik.testing.plugin`. Modules are imported on first use, because pytest loads the plugin in
every run, even if no test uses a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronik.testing.broker import Broker
    from chronik.testing.cluster import Cluster, ClusterNode
    from chronik.testing.control import BrokerFailed
    from chronik.testing.decoded import DecodedRecord
    from chronik.testing.secured import SecuredBroker
    from chronik.testing.seen import SeenRequest

__all__ = ["Broker", "BrokerFailed", "Cluster", "ClusterNode", "DecodedRecord", "SecuredBroker", "SeenRequest"]

_MODULES = {
    "Broker": "broker",
    "BrokerFailed": "control",
    "Cluster": "cluster",
    "ClusterNode": "cluster",
    "DecodedRecord": "decoded",
    "SecuredBroker": "secured",
    "SeenRequest": "seen",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
