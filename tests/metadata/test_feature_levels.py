"""The feature level of a cluster: registration, upgrades, bootstrap and versions that do not support it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from chronik.errors import DamagedDataError
from chronik.files import DiskFileSystem
from chronik.metadata import levels
from chronik.metadata.commands.brokers import RegisterBroker, UpdateBrokerConfig
from chronik.metadata.commands.cluster import CreateCluster, SetFeatureLevel
from chronik.metadata.image import Image
from chronik.metadata.levels import UnsupportedLevelError, get_cluster_level
from chronik.metadata.records import ApplyResult
from chronik.metadata.snapshot import CHUNK_RECORDS, FeatureEntry, SnapshotHeader, SnapshotLoader, decode_snapshot
from chronik.metadata.stores.local_store import LocalStore
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import MetadataWorld, build_id, encode_verified_snapshot


@pytest.fixture(autouse=True)
def first_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a version that supports only level 1."""
    monkeypatch.setattr(levels, "HIGHEST", levels.FIRST_LEVEL)


@pytest.fixture
def two_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a version that also supports level 2."""
    monkeypatch.setattr(levels, "HIGHEST", 2)


def registration(broker: int, supported: tuple[int, int], life: int = 0) -> RegisterBroker:
    incarnation = build_id(1000 * (life + 1) + broker)
    return RegisterBroker(broker, f"host{broker}", 9092, None, incarnation, build_id(broker), levels=supported)


def raised(level: int) -> SetFeatureLevel:
    return SetFeatureLevel(levels.FEATURE_NAME, level)


def level_in(image: Image) -> int:
    return get_cluster_level(image.features)


@pytest.mark.usefixtures("two_levels")
def test_level_is_raised_when_all_brokers_support_it() -> None:
    world = MetadataWorld()
    for broker, supported in ((1, (1, 2)), (2, (1, 1)), (3, (1, 1))):
        world.accept(registration(broker, supported))
    code, message = world.reject(raised(2))
    assert code is ErrorCode.INVALID_UPDATE_VERSION
    assert message.startswith(
        "Invalid update version 2 for feature chronik.version. Not all brokers support it: 2 (1 to 1), 3 (1 to 1)."
    )
    world.accept(registration(2, (1, 2), life=1))
    assert "3 (1 to 1)" in world.reject(raised(2))[1]
    world.accept(registration(3, (1, 3), life=1))
    assert level_in(world.image) == 1
    world.accept(raised(2))
    assert level_in(world.image) == 2
    world.accept(raised(2))
    assert world.replay().state_hash == world.image.state_hash


@pytest.mark.usefixtures("two_levels")
def test_level_cannot_be_lowered() -> None:
    world = MetadataWorld()
    world.accept(registration(1, (1, 2)))
    world.accept(raised(2))
    for lower in (1, 0):
        code, message = world.reject(raised(lower))
        assert code is ErrorCode.INVALID_UPDATE_VERSION
        assert "It is at 2 and is never lowered" in message


def test_image_without_level_is_at_level_1() -> None:
    world = MetadataWorld(1)
    assert level_in(world.image) == 1
    before = world.image.features
    world.accept(raised(1))
    assert world.image.features == before == {}
    assert world.reject(raised(2))[0] is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.usefixtures("two_levels")
def test_broker_that_does_not_support_level_cannot_register() -> None:
    world = MetadataWorld()
    world.accept(CreateCluster("c", 1))
    world.accept(registration(1, (1, 2)))
    code, message = world.reject(registration(2, (2, 3)))
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert "broker 2 supports chronik.version 2 to 3, and the cluster is at 1: start it with an older" in message
    world.accept(raised(2))
    code, message = world.reject(registration(3, (1, 1)))
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert "broker 3 supports chronik.version 1 to 1, and the cluster is at 2: start it with a newer" in message
    world.accept(registration(2, (2, 3)))


# --- bootstrap ---


def test_version_without_first_level_can_bootstrap_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers register before the bootstrap."""
    monkeypatch.setattr(levels, "LOWEST", 2)
    monkeypatch.setattr(levels, "HIGHEST", 4)
    world = MetadataWorld()
    assert levels.choose_bootstrap_level(world.image.brokers) == 4
    for broker, supported in ((1, (2, 4)), (2, (2, 3)), (3, (1, 5))):
        world.accept(registration(broker, supported))
    assert levels.choose_bootstrap_level(world.image.brokers) == 3
    world.accept(raised(3))
    world.accept(CreateCluster("c", 1))
    assert level_in(world.image) == 3
    assert world.replay().state_hash == world.image.state_hash


def test_bootstrap_fails_if_brokers_share_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MetadataWorld()
    world.accept(registration(1, (2, 3)))
    world.accept(registration(2, (1, 1)))
    for lowest, highest in ((1, 1), (2, 3)):
        monkeypatch.setattr(levels, "LOWEST", lowest)
        monkeypatch.setattr(levels, "HIGHEST", highest)
        with pytest.raises(KafkaError) as error:
            levels.choose_bootstrap_level(world.image.brokers)
        assert error.value.message == (
            "no chronik.version level is supported by all brokers: "
            f"this node ({lowest} to {highest}), 1 (2 to 3), 2 (1 to 1)"
        )
    world.accept(registration(2, (1, 3), life=1))
    assert levels.choose_bootstrap_level(world.image.brokers) == 3


@pytest.mark.usefixtures("two_levels")
def test_bootstrap_is_rejected_if_new_broker_does_not_support_level() -> None:
    world = MetadataWorld()
    world.accept(registration(1, (2, 3)))
    code, message = world.reject(CreateCluster("c", 1))  # the proposer has not seen this broker
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert message.startswith("chronik.version 1: Not all brokers support it: 1 (2 to 3).")
    world.accept(raised(2))
    for supported in ((1, 1), (3, 4)):
        assert world.reject(registration(2, supported))[0] is ErrorCode.UNSUPPORTED_VERSION
    world.accept(CreateCluster("c", 1))


# --- unsupported levels ---


def test_node_stops_at_unsupported_level() -> None:
    with pytest.raises(
        UnsupportedLevelError, match=r"the cluster is at chronik\.version 2, and this version of Chronik"
    ):
        MetadataWorld().apply(raised(2))


def test_snapshot_with_unsupported_level_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MetadataWorld()
    with monkeypatch.context() as newer:
        newer.setattr(levels, "HIGHEST", 2)
        world.accept(raised(2))
        chunks = encode_verified_snapshot(world.image)
        assert level_in(decode_snapshot(chunks)) == 2
    with pytest.raises(UnsupportedLevelError, match=r"the snapshot is at chronik\.version 2"):
        decode_snapshot(chunks)
    unknown = msgspec.msgpack.encode([*msgspec.msgpack.decode(chunks[0]), [99, "what came with level 2"]])
    with pytest.raises(UnsupportedLevelError, match=r"the snapshot is at chronik\.version 2"):
        decode_snapshot([unknown])
    damaged = msgspec.msgpack.encode([[99, "what came with no level"]])
    for chunk in (damaged, chunks[0][:-1], levels.FEATURE_NAME.encode()):
        with pytest.raises(DamagedDataError):
            decode_snapshot([chunk])


def test_snapshot_level_precedes_entries_that_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MetadataWorld()
    with monkeypatch.context() as newer:
        newer.setattr(levels, "HIGHEST", 2)
        world.accept(raised(2))
        for number in range(CHUNK_RECORDS + 1):
            world.accept(UpdateBrokerConfig(number, {"a": "b"}))
        first, *others = encode_verified_snapshot(world.image)
        assert level_in(decode_snapshot([first, *others])) == 2
    head = msgspec.msgpack.encode([SnapshotHeader(2, 5, bytes(16), "c", 0), FeatureEntry(levels.FEATURE_NAME, 2)])
    for beginning in (first, head):
        loader = SnapshotLoader()
        with pytest.raises(UnsupportedLevelError, match=r"the snapshot is at chronik\.version 2"):
            loader.add(beginning)
    assert others


def test_feature_name_in_other_entries_is_not_taken_for_level() -> None:
    group = msgspec.msgpack.encode([[9, levels.FEATURE_NAME, 7], [5, "another", 9], [5, levels.FEATURE_NAME, 3]])
    assert levels.peek_feature_level(group, 5) == 3
    assert levels.peek_feature_level(msgspec.msgpack.encode([[9, levels.FEATURE_NAME, 7]]), 5) == 1


# --- stores ---


def in_store(folder: Path, *commands: SetFeatureLevel | CreateCluster) -> tuple[list[ApplyResult], int]:
    """Propose commands to a local store. Return their results and the final feature level."""

    async def run() -> tuple[list[ApplyResult], int]:
        store = LocalStore(DiskFileSystem(folder))
        await store.start()
        try:
            return [await store.propose(command) for command in commands], level_in(store.image)
        finally:
            await store.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_new_store_starts_at_highest_level_and_old_store_keeps_its_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_store(tmp_path / "old")[1] == 1
    monkeypatch.setattr(levels, "HIGHEST", 2)
    assert in_store(tmp_path / "new")[1] == 2
    assert in_store(tmp_path / "old")[1] == 1
    assert in_store(tmp_path / "old", raised(2))[1] == 2
    assert in_store(tmp_path / "old")[1] == 2
    monkeypatch.setattr(levels, "HIGHEST", 1)
    for folder in ("old", "new"):
        with pytest.raises(UnsupportedLevelError):
            in_store(tmp_path / folder)


def test_command_above_cluster_level_is_rejected_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_store(tmp_path)
    monkeypatch.setitem(levels.CLASS_LEVELS, SetFeatureLevel, 2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "__meta").iterdir()}
    with pytest.raises(KafkaError) as error:
        in_store(tmp_path, SetFeatureLevel("anything", 1))
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert {path.name: path.read_bytes() for path in (tmp_path / "__meta").iterdir()} == before
