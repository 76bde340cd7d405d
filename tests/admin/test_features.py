"""Updates of feature levels: checked against the levels that this node and all brokers support."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.admin.features import FeatureUpdate, update_features
from chronik.metadata import levels
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.envelope import Command
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import MetadataWorld, build_id


def proposed(world: MetadataWorld, level: int, *, validate_only: bool = False) -> list[Command]:
    """Return the commands that a node proposes to raise the cluster to `level`."""
    found: list[Command] = []

    async def read_barrier() -> None:
        """Return immediately: there is no other node."""

    async def propose(command: Command) -> None:
        found.append(command)

    store = SimpleNamespace(image=world.image, read_barrier=read_barrier, propose=propose)
    updates = {levels.FEATURE_NAME: FeatureUpdate(level)}
    asyncio.run(update_features(cast(MetadataStore, store), updates, validate_only=validate_only))
    return found


def with_brokers(*supported: tuple[int, int]) -> MetadataWorld:
    world = MetadataWorld()
    for broker, each in enumerate(supported, 1):
        world.accept(RegisterBroker(broker, "h", 1, None, build_id(broker), build_id(broker), levels=each))
    return world


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("world", "level", "fault"),
    [
        (with_brokers(), 2, "No broker is registered yet."),
        (with_brokers(), 7, "No broker is registered yet."),
        (with_brokers((1, 3), (1, 4)), 3, "The node that was asked supports 2 at most."),
        (with_brokers((1, 3), (1, 1)), 3, "Not all brokers support it: 2 (1 to 1). "),
    ],
)
def test_unsupported_feature_level_is_rejected(
    monkeypatch: pytest.MonkeyPatch, world: MetadataWorld, level: int, fault: str, validate_only: bool
) -> None:
    monkeypatch.setattr(levels, "HIGHEST", 2)
    with pytest.raises(KafkaError) as error:
        proposed(world, level, validate_only=validate_only)
    assert error.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert error.value.message.startswith(f"Invalid update version {level} for feature chronik.version. {fault}")


def test_supported_feature_level_is_proposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old nodes would store a level that is already reached, newer ones would not, and their states would diverge."""
    monkeypatch.setattr(levels, "HIGHEST", 2)
    world = with_brokers((1, 2), (1, 3))
    assert proposed(world, 1) == []
    assert proposed(world, 2, validate_only=True) == []
    assert proposed(world, 2) == [SetFeatureLevel(levels.FEATURE_NAME, 2)]
    world.accept(SetFeatureLevel(levels.FEATURE_NAME, 2))
    assert proposed(world, 2) == []
