"""Keys of known and unknown users: the responses before authentication must not reveal which users exist."""

from __future__ import annotations

from collections import Counter

import pytest

from chronik.metadata.commands.users import AlterScramUser, ScramKeys
from chronik.security.sasl.scram_keys import ITERATIONS_MIN, MECHANISMS_BY_NAME, MECHANISMS_BY_NUMBER, SALT_BYTES
from chronik.security.sasl.users import ScramUsers
from tests.metadata.metadata_world import MetadataWorld

SHA_256 = MECHANISMS_BY_NAME["SCRAM-SHA-256"]
NAMES = [f"user-{number}" for number in range(2000)]


def world_with(*iterations: int, secret: bytes = b"secret of the cluster") -> MetadataWorld:
    world = MetadataWorld()
    for number, count in enumerate(iterations):
        keys = ScramKeys(SHA_256.number, b"0123456789abcdefghijklmnop", b"s" * 32, b"t" * 32, count)
        world.accept(AlterScramUser(f"known-{number}", (keys,), secret=secret))
    return world


def users_of(world: MetadataWorld) -> ScramUsers:
    return ScramUsers(lambda: world.image)


def iterations_of(world: MetadataWorld, names: list[str]) -> Counter[int]:
    users = users_of(world)
    return Counter(users.keys(SHA_256, name)[0].iterations for name in names)


def test_iterations_of_unknown_users_follow_those_of_known_users() -> None:
    world = world_with(*[4096] * 6, *[8192] * 3, 16384)
    assert iterations_of(world, [f"known-{number}" for number in range(10)]) == {4096: 6, 8192: 3, 16384: 1}
    found = iterations_of(world, NAMES)
    for iterations, users in ((4096, 6), (8192, 3), (16384, 1)):
        assert found[iterations] == pytest.approx(len(NAMES) * users / 10, rel=0.25)


def test_iterations_of_unknown_users_are_the_default_without_users() -> None:
    assert iterations_of(MetadataWorld(), NAMES[:10]) == {ITERATIONS_MIN: 10}


def test_keys_of_unknown_users_are_stable_over_nodes_and_restarts() -> None:
    one, other = users_of(world_with(4096, 8192)), users_of(world_with(4096, 8192))
    for scram in MECHANISMS_BY_NUMBER.values():
        assert [one.keys(scram, name) for name in NAMES[:100]] == [other.keys(scram, name) for name in NAMES[:100]]


def test_keys_of_unknown_users_depend_on_the_cluster_secret() -> None:
    one, other = users_of(world_with(4096, 8192, secret=b"one")), users_of(world_with(4096, 8192, secret=b"other"))
    found = [(one.keys(SHA_256, name)[0], other.keys(SHA_256, name)[0]) for name in NAMES[:100]]
    assert all(a.salt != b.salt for a, b in found)
    assert any(a.iterations != b.iterations for a, b in found)


def test_adding_a_user_changes_few_keys_of_unknown_users() -> None:
    before = users_of(world_with(*[4096] * 50, *[8192] * 50))
    after = users_of(world_with(*[4096] * 50, *[8192] * 51))
    changed = sum(before.keys(SHA_256, name) != after.keys(SHA_256, name) for name in NAMES)
    assert changed <= len(NAMES) * 0.02
    assert all(len(after.keys(SHA_256, name)[0].salt) == SALT_BYTES for name in NAMES[:20])
