"""ApiVersions and UpdateFeatures: supported features of Kafka and Chronik's own feature level."""

from __future__ import annotations

import pytest

from chronik.admin.features import describe_features
from chronik.metadata import levels
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from chronik.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from chronik.testing import Broker
from tests.api.transaction_node import TransactionNode
from tests.raw import RawClient

METADATA, TRANSACTIONS, OWN = "metadata.version", "transaction.version", "chronik.version"
KAFKA_4_3 = 30
"""The level of metadata.version that Kafka 4.3.1 reports."""


def asked(client: RawClient, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return client.request(request, version, ApiVersionsResponse)


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_returns_supported_and_finalized_features(client: RawClient, version: int) -> None:
    answer = asked(client, version)
    levels_of = {METADATA: (KAFKA_4_3, KAFKA_4_3), TRANSACTIONS: (0, 2), OWN: (levels.LOWEST, levels.HIGHEST)}
    assert answer.supported_features == [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in levels_of.items()
        if low > 0 or version >= 4
    ]
    assert answer.finalized_features == [
        FinalizedFeatureKey(name=name, min_version_level=high, max_version_level=high)
        for name, (_, high) in levels_of.items()
    ]


def test_cluster_before_upgrade_does_not_finalize_transaction_version() -> None:
    node = TransactionNode(level=1)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = node.send_request(request, 4, ApiVersionsResponse)
    assert TRANSACTIONS in [feature.name for feature in answer.supported_features]
    assert [(feature.name, feature.max_version_level) for feature in answer.finalized_features] == [
        (METADATA, KAFKA_4_3),
        (OWN, 1),
    ]
    assert describe_features(node.world.image)[TRANSACTIONS].level == 0


def test_finalized_features_epoch_increases_with_metadata_changes(client: RawClient, chronik_broker: Broker) -> None:
    before = asked(client, 4).finalized_features_epoch
    assert before > 0
    chronik_broker.create_topic("one-more-for-the-epoch")
    assert asked(client, 4).finalized_features_epoch > before


@pytest.mark.parametrize("version", [3, 4])
def test_features_with_minimum_0_are_omitted_before_version_4(client: RawClient, version: int) -> None:
    """Clients of version 3 cannot decode a minimum version of 0 (KAFKA-17492)."""
    may_be_off = [feature.name for feature in asked(client, version).supported_features if feature.min_version == 0]
    assert may_be_off == ([TRANSACTIONS] if version >= 4 else [])


# UpdateFeatures

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def updated(
    client: RawClient, *updates: tuple[str, int], version: int = 2, upgrade: int = UPGRADE, validate_only: bool = False
) -> UpdateFeaturesResponse:
    keys = []
    for name, level in updates:
        key = FeatureUpdateKey(feature=name, max_version_level=level)
        if version:
            key.upgrade_type = upgrade
        else:
            key.allow_downgrade = upgrade != UPGRADE
        keys.append(key)
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return client.request(request, version, UpdateFeaturesResponse)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_update_features_to_current_level_succeeds(client: RawClient, version: int) -> None:
    reached = (OWN, levels.HIGHEST), (METADATA, KAFKA_4_3), (TRANSACTIONS, 2)
    answer = updated(client, *reached, version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    message = [UpdatableFeatureResult(feature=name) for name, _ in reached]
    assert answer.results == (message if version < 2 else [])


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("validate_only", [False, True])
def test_update_features_rejects_level_unsupported_by_a_broker(
    client: RawClient, version: int, validate_only: bool
) -> None:
    if validate_only and not version:
        return
    wanted = ("metadata.version", KAFKA_4_3), ("chronik.version", levels.HIGHEST + 1)
    answer = updated(client, *wanted, version=version, validate_only=validate_only)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == (
        f"Invalid update version {levels.HIGHEST + 1} for feature chronik.version. Not all brokers support it: "
        f"1 ({levels.LOWEST} to {levels.HIGHEST}). Start them with a version of Chronik that does first."
    )
    assert answer.results == []


@pytest.mark.parametrize(
    ("update", "upgrade", "message"),
    [
        (("chronik.version", levels.HIGHEST - 1), UPGRADE, "is never lowered"),
        (("chronik.version", levels.HIGHEST - 1), SAFE_DOWNGRADE, "is never lowered"),
        (("chronik.version", 0), UNSAFE_DOWNGRADE, "is never lowered"),
        (("chronik.version", levels.HIGHEST + 1), SAFE_DOWNGRADE, "Can't downgrade to a newer version."),
        (("chronik.version", levels.HIGHEST), 9, "does not support the given upgrade type"),
        (("metadata.version", 29), UPGRADE, "Brokers support 30 and no other."),
        (("transaction.version", 1), SAFE_DOWNGRADE, "is never changed alone"),
        (("transaction.version", 0), UNSAFE_DOWNGRADE, "is never changed alone"),
        (("transaction.version", 3), UPGRADE, "is never changed alone"),
        (("group.version", 1), UPGRADE, "No broker supports this feature."),
    ],
)
def test_update_features_rejects_invalid_update_with_message(
    client: RawClient, update: tuple[str, int], upgrade: int, message: str
) -> None:
    answer = updated(client, update, upgrade=upgrade)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"Invalid update version {update[1]} for feature {update[0]}. " in (answer.error_message or "")
    assert message in (answer.error_message or "")
