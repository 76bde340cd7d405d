"""Feature levels of a cluster: describe and raise them."""

from __future__ import annotations

from typing import NamedTuple

import chronik
from chronik.client.cluster import Cluster, raise_for
from chronik.client.connection import Connection
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

FEATURE = "chronik.version"
FIRST = 1
"""The level of nodes that do not report feature levels."""


class Levels(NamedTuple):
    """The feature level of a cluster and the levels that one broker supports."""

    lowest: int
    highest: int
    """The highest level that the broker supports."""
    level: int
    """The finalized level of the cluster."""


def levels_told_by(connection: Connection) -> Levels | None:
    """Request the broker's feature levels. Return None if the broker is not Chronik or does not report levels."""
    request = ApiVersionsRequest(client_software_name="chronik", client_software_version=chronik.__version__)
    response = connection.request(request, ApiVersionsResponse)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return Levels(*supported[FEATURE], finalized[FEATURE]) if FEATURE in supported else None


def raise_level(cluster: Cluster, level: int) -> None:
    """Raise the feature level of the cluster. Raises KafkaError if the cluster rejects the level."""
    update = FeatureUpdateKey(feature=FEATURE, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=int(cluster.timeout_s * 1000))
    response = cluster.retrying(lambda: cluster.any_broker().request(request, UpdateFeaturesResponse))
    raise_for(response.error_code, "feature level not raised", response.error_message)
