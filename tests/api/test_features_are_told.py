"""ApiVersions: the one feature of Kafka's that holds here, so that tools know what they talk to, and no other."""

from __future__ import annotations

import pytest

from chronik.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from chronik.testing import Broker
from tests.raw import RawClient

KAFKA_4_3 = 30
"""The level of metadata.version that Kafka 4.3.1 reports."""


def asked(client: RawClient, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return client.ask(request, version, ApiVersionsResponse)


@pytest.mark.parametrize("version", [3, 4])
def test_metadata_version_is_the_only_feature(client: RawClient, version: int) -> None:
    answer = asked(client, version)
    name = "metadata.version"
    assert answer.supported_features == [
        SupportedFeatureKey(name=name, min_version=KAFKA_4_3, max_version=KAFKA_4_3)
    ]
    assert answer.finalized_features == [
        FinalizedFeatureKey(name=name, min_version_level=KAFKA_4_3, max_version_level=KAFKA_4_3)
    ]


def test_the_epoch_of_features_grows_with_the_metadata(client: RawClient, chronik_broker: Broker) -> None:
    before = asked(client, 4).finalized_features_epoch
    assert before > 0
    chronik_broker.create_topic("one-more-for-the-epoch")
    assert asked(client, 4).finalized_features_epoch > before


@pytest.mark.parametrize("version", [3, 4])
def test_features_that_may_be_switched_off_are_not_told_before_version_4(client: RawClient, version: int) -> None:
    """Clients of version 3 give up on a lowest version of 0: KAFKA-17492. There are none here, in any version."""
    assert all(feature.min_version > 0 for feature in asked(client, version).supported_features)
