"""Commands of client quotas."""

from __future__ import annotations

import pytest

from chronik.limits import QUOTA_ENTITIES_MAX, QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata import hashing, levels
from chronik.metadata.commands.envelope import UnknownCommandError
from chronik.metadata.commands.quotas import AlterQuotas, QuotaAlteration
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode, KafkaError

from .metadata_world import MetadataWorld, encode_verified_snapshot

ALICE = (("user", "alice"),)


def alter(*alterations: QuotaAlteration) -> AlterQuotas:
    return AlterQuotas(alterations)


def test_alter_quotas_sets_and_removes_single_keys() -> None:
    world = MetadataWorld()
    world.accept(alter(QuotaAlteration(ALICE, {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0})))
    assert world.delta.quotas == (ALICE,)
    world.accept(alter(QuotaAlteration(ALICE, {"request_percentage": 0.5}, ("producer_byte_rate", "never set"))))
    assert world.image.quotas == {ALICE: {"consumer_byte_rate": 6.0, "request_percentage": 0.5}}
    assert decode_snapshot(encode_verified_snapshot(world.image)).quotas == world.image.quotas
    world.accept(alter(QuotaAlteration(ALICE, {}, ("consumer_byte_rate", "request_percentage"))))
    assert world.image.quotas == {}
    assert world.replay().state_hash == world.image.state_hash


def test_alteration_without_effect_produces_no_delta() -> None:
    world = MetadataWorld()
    world.accept(alter(QuotaAlteration(ALICE, {"producer_byte_rate": 5.0})))
    world.accept(alter(QuotaAlteration(ALICE, {"producer_byte_rate": 5}), QuotaAlteration((("user", ""),), {}, ("x",))))
    assert not world.delta


def test_order_of_entity_parts_is_irrelevant() -> None:
    world = MetadataWorld()
    world.accept(alter(QuotaAlteration((("user", ""), ("client-id", "c")), {"producer_byte_rate": 5.0})))
    world.accept(alter(QuotaAlteration((("client-id", "c"), ("user", "")), {"producer_byte_rate": 6.0})))
    assert world.image.quotas == {(("client-id", "c"), ("user", "")): {"producer_byte_rate": 6.0}}


def test_number_of_quota_entities_is_limited() -> None:
    world = MetadataWorld()
    quotas = {"producer_byte_rate": 1.0}
    everybody = [QuotaAlteration((("user", str(number)),), quotas) for number in range(QUOTA_ENTITIES_MAX)]
    assert not world.accept(alter(*everybody)).failures
    again = QuotaAlteration((("user", "0"),), {"producer_byte_rate": 2.0})
    (failure,) = world.accept(alter(QuotaAlteration(ALICE, quotas), again)).failures
    assert (failure.item, failure.code) == (0, ErrorCode.POLICY_VIOLATION)
    assert len(world.image.quotas) == QUOTA_ENTITIES_MAX
    assert world.image.quotas[again.entity] == {"producer_byte_rate": 2.0}
    assert decode_snapshot(encode_verified_snapshot(world.image)).quotas == world.image.quotas


def test_length_of_entity_name_is_limited() -> None:
    world = MetadataWorld()
    world.accept(alter(QuotaAlteration((("user", "u" * QUOTA_NAME_CHARACTERS_MAX),), {})))
    with pytest.raises(UnknownCommandError):
        world.apply(alter(QuotaAlteration((("user", "u" * (QUOTA_NAME_CHARACTERS_MAX + 1)),), {})))


def test_record_types_have_distinct_hash_numbers() -> None:
    kinds = [
        value
        for name, value in vars(hashing).items()
        if name.isupper() and isinstance(value, int) and not name.startswith(("HASH_", "_"))
    ]
    assert len(kinds) > 15
    assert len(kinds) == len(set(kinds))


def test_quotas_require_security_feature_level() -> None:
    levels.check_command_level(alter(), levels.SECURITY_LEVEL)
    with pytest.raises(KafkaError, match=r"AlterQuotas needs chronik\.version 4"):
        levels.check_command_level(alter(), levels.SECURITY_LEVEL - 1)
