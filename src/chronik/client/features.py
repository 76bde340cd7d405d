"""Feature levels of a cluster: describe and raise them."""

from __future__ import annotations

from typing import NamedTuple

import chronik
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.connection import BrokerConnection
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

FEATURE_NAME = "chronik.version"
FIRST_LEVEL = 1
"""The level of nodes that do not report feature levels."""


class FeatureLevels(NamedTuple):
    """The feature level of a cluster and the levels that one broker supports."""

    lowest: int
    highest: int
    """The highest level that the broker supports."""
    level: int
    """The finalized level of the cluster."""


def describe_feature_levels(connection: BrokerConnection) -> FeatureLevels | None:
    """Request the broker's feature levels. Return None if the broker is not Chronik or does not report levels."""
    request = ApiVersionsRequest(client_software_name="chronik", client_software_version=chronik.__version__)
    response = connection.request(request, ApiVersionsResponse)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return FeatureLevels(*supported[FEATURE_NAME], finalized[FEATURE_NAME]) if FEATURE_NAME in supported else None


def raise_feature_level(cluster: ClusterClient, level: int) -> None:
    """Raise the feature level of the cluster. Raises KafkaError if the cluster rejects the level."""
    update = FeatureUpdateKey(feature=FEATURE_NAME, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=int(cluster.timeout_s * 1000))
    response = cluster.retry(lambda: cluster.any_broker().request(request, UpdateFeaturesResponse))
    raise_for_code(response.error_code, "feature level not raised", response.error_message)
