"""Features, as tools know them: which there are, at which level each of them is, and how it is raised."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from chronik.admin.second_look import look_again
from chronik.metadata import levels
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

KAFKAS_FEATURE: Final = "metadata.version"
KAFKAS_LEVEL: Final = 30
"""Kafka's 4.3-IV0, whose messages are spoken here, and from which tools take the release that a node is like. The one
level that is supported: metadata is kept in Chronik's own commands, which have levels of their own."""

TRANSACTIONS_FEATURE: Final = "transaction.version"
TRANSACTIONS_LEVEL: Final = 2
"""Kafka's transactions v2, KIP-890. It follows from Chronik's own level: a cluster has them from the level on at which
it has transactions, and none before."""


class Feature(NamedTuple):
    lowest: int
    highest: int
    """What this node supports."""
    level: int
    """That of the cluster; 0 for what it does not have."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def features_of(image: Image) -> dict[str, Feature]:
    own = levels.level_of(image.features)
    return {
        KAFKAS_FEATURE: Feature(KAFKAS_LEVEL, KAFKAS_LEVEL, KAFKAS_LEVEL),
        TRANSACTIONS_FEATURE: Feature(0, TRANSACTIONS_LEVEL, TRANSACTIONS_LEVEL if own >= levels.TRANSACTIONS else 0),
        levels.FEATURE: Feature(levels.LOWEST, levels.HIGHEST, own),
    }


async def update_features(store: MetadataStore, updates: Mapping[str, Update], *, validate_only: bool = False) -> None:
    """Updates all of them or none. Raises KafkaError, in the words that Kafka's tools expect."""
    await look_again(store)
    for name, update in updates.items():
        fault = _fault(store.image, name, update)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, levels.not_updated(name, update.level, fault))
    wanted = updates.get(levels.FEATURE)
    # Nodes that know nothing of levels yet would store also one that is reached already.
    if wanted is not None and wanted.level > levels.level_of(store.image.features) and not validate_only:
        await store.propose(SetFeatureLevel(levels.FEATURE, wanted.level))


def _fault(image: Image, name: str, update: Update) -> str | None:
    if update.upgrade_type not in list(UpgradeType):
        return "The controller does not support the given upgrade type."
    if name not in features_of(image):
        return "No broker supports this feature."
    if name == KAFKAS_FEATURE:
        return None if update.level == KAFKAS_LEVEL else f"Brokers support {KAFKAS_LEVEL} and no other."
    if name == TRANSACTIONS_FEATURE:
        return _fault_of_transactions(image, update)
    if update.level > levels.level_of(image.features) and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    fault = levels.why_not_raised(image.features, image.brokers, update.level)
    if fault is None and not image.brokers:
        return "No broker is registered yet."
    if fault is None and update.level > levels.HIGHEST:
        return f"The node that was asked supports {levels.HIGHEST} at most."
    return fault


def _fault_of_transactions(image: Image, update: Update) -> str | None:
    current = features_of(image)[TRANSACTIONS_FEATURE].level
    if update.level == current:
        return None
    if current == 0:
        return f"It comes with {levels.FEATURE} {levels.TRANSACTIONS}: chronik cluster upgrade."
    return f"It is at {current} with {levels.FEATURE} {levels.level_of(image.features)}, and is never changed alone."
