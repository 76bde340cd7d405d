"""Asks for the levels of a cluster's features, and raises them."""

from __future__ import annotations

from typing import NamedTuple

import chronik
from chronik.client.cluster import Cluster, raise_for
from chronik.client.connection import Connection
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

FEATURE = "chronik.version"
FIRST = 1
"""The level of nodes that say nothing of levels."""


class Levels(NamedTuple):
    lowest: int
    highest: int
    """What the broker that was asked supports."""
    level: int
    """That of the cluster."""


def levels_told_by(connection: Connection) -> Levels | None:
    """Returns None for a broker that is not Chronik's, or has no levels yet."""
    request = ApiVersionsRequest(client_software_name="chronik", client_software_version=chronik.__version__)
    response = connection.request(request, ApiVersionsResponse)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return Levels(*supported[FEATURE], finalized[FEATURE]) if FEATURE in supported else None


def raise_level(cluster: Cluster, level: int) -> None:
    """Raises KafkaError when the cluster cannot be brought to this level."""
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=int(cluster.timeout_s * 1000))
    response = cluster.retrying(lambda: cluster.any_broker().request(request, UpdateFeaturesResponse))
    raise_for(response.error_code, "not upgraded", response.error_message)
