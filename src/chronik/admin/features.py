"""Description and update of feature levels, as in Kafka's DescribeFeatures and UpdateFeatures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from chronik.admin.fresh_image_retry import refresh_image
from chronik.metadata import levels
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

KAFKA_FEATURE: Final = "metadata.version"
KAFKA_FEATURE_LEVEL: Final = 30
"""The supported level of Kafka's `metadata.version` feature (4.3-IV0), which tells tools the Kafka release.

It is the only supported level: Chronik versions its metadata commands with a feature level of its own.
"""

TRANSACTIONS_FEATURE: Final = "transaction.version"
TRANSACTIONS_LEVEL: Final = 2
"""Level of Kafka's feature `transaction.version` that stands for transactions v2 (KIP-890).

Chronik's own feature level enables it.
"""


class FeatureState(NamedTuple):
    """A feature's current level in the cluster, and the range of levels that this node supports."""

    lowest: int
    highest: int
    """The highest level of the feature that this node supports."""
    level: int
    """The feature's current level in the cluster, or 0 if the feature is disabled."""


class UpgradeType(IntEnum):
    """Whether a feature update may upgrade or downgrade, with the numeric codes of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A requested change of a feature's level (UpdateFeatures)."""

    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def describe_features(image: Image) -> dict[str, FeatureState]:
    """Return the features of the cluster by name."""
    own = levels.get_cluster_level(image.features)
    return {
        KAFKA_FEATURE: FeatureState(KAFKA_FEATURE_LEVEL, KAFKA_FEATURE_LEVEL, KAFKA_FEATURE_LEVEL),
        TRANSACTIONS_FEATURE: FeatureState(
            0, TRANSACTIONS_LEVEL, TRANSACTIONS_LEVEL if own >= levels.TRANSACTIONS_LEVEL else 0
        ),
        levels.FEATURE_NAME: FeatureState(levels.LOWEST, levels.HIGHEST, own),
    }


async def update_features(
    store: MetadataStore, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
) -> None:
    """Update all features atomically: if one update is rejected, none is applied.

    Raises:
        KafkaError: An update is rejected, with the message that Kafka's tools expect.
    """
    await refresh_image(store)
    for name, update in updates.items():
        fault = _find_feature_update_error(store.image, name, update)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, levels.format_update_error(name, update.level, fault))
    wanted = updates.get(levels.FEATURE_NAME)
    # Old nodes without feature levels would store the level even if it is already reached.
    if wanted is not None and wanted.level > levels.get_cluster_level(store.image.features) and not validate_only:
        await store.propose(SetFeatureLevel(levels.FEATURE_NAME, wanted.level))


def _find_feature_update_error(image: Image, name: str, update: FeatureUpdate) -> str | None:
    if update.upgrade_type not in list(UpgradeType):
        return "The controller does not support the given upgrade type."
    if name not in describe_features(image):
        return "No broker supports this feature."
    if name == KAFKA_FEATURE:
        return None if update.level == KAFKA_FEATURE_LEVEL else f"Brokers support {KAFKA_FEATURE_LEVEL} and no other."
    if name == TRANSACTIONS_FEATURE:
        return _find_transaction_version_error(image, update)
    if update.level > levels.get_cluster_level(image.features) and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    fault = levels.find_upgrade_obstacle(image.features, image.brokers, update.level)
    if fault is None and not image.brokers:
        return "No broker is registered yet."
    if fault is None and update.level > levels.HIGHEST:
        return f"The node that was asked supports {levels.HIGHEST} at most."
    return fault


def _find_transaction_version_error(image: Image, update: FeatureUpdate) -> str | None:
    current = describe_features(image)[TRANSACTIONS_FEATURE].level
    if update.level == current:
        return None
    if current == 0:
        return f"It comes with {levels.FEATURE_NAME} {levels.TRANSACTIONS_LEVEL}: chronik cluster upgrade."
    return (
        f"It is at {current} with {levels.FEATURE_NAME} {levels.get_cluster_level(image.features)}, and is never "
        "changed alone."
    )
