"""Commands of ACLs, client quotas and SCRAM users, and the credential parameters of unknown users."""

from __future__ import annotations

import pytest

from chronik.limits import ACLS_MAX, QUOTA_ENTITIES_MAX, QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata import hashing, levels
from chronik.metadata.commands.envelope import Envelope, UnknownCommandError, decode_command, encode_command
from chronik.metadata.commands.security import (
    ACLS_PER_COMMAND_MAX,
    AlterQuotas,
    AlterScramUser,
    CreateAcls,
    DeleteAcls,
    QuotaAlteration,
    ScramKeys,
)
from chronik.metadata.delta import RecordChange, diff_images
from chronik.metadata.handlers import security as handlers
from chronik.metadata.image import Image
from chronik.metadata.records import Acl, SaltSecret, ScramCredential
from chronik.metadata.snapshot import decode_snapshot, encode_snapshot
from chronik.metadata.tables import CredentialShape
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import NODE, NODE_INCARNATION, MetadataWorld, encode_verified_snapshot

SHA_256, SHA_512 = 1, 2

ALICE = (("user", "alice"),)


def keys(mechanism: int = SHA_256, *, iterations: int = 4096, salt: bytes = b"salt") -> ScramKeys:
    size = 32 * mechanism
    return ScramKeys(mechanism, salt, b"S" * size, b"V" * size, iterations)


def test_scram_credentials_can_be_set_replaced_and_removed() -> None:
    world = MetadataWorld()
    world.accept(AlterScramUser("alice", (keys(), keys(SHA_512)), secret=b"s" * 32))
    assert set(world.image.users.credentials("alice")) == {SHA_256, SHA_512}
    world.accept(AlterScramUser("alice", (keys(iterations=8192),), (SHA_512,)))
    (credential,) = world.image.users.credentials("alice").values()
    assert (credential.mechanism, credential.iterations) == (SHA_256, 8192)
    world.accept(AlterScramUser("alice", remove=(SHA_256,)))
    assert not world.image.users.by_name
    assert world.image.salt_secret == b"s" * 32
    assert world.replay().state_hash == world.image.state_hash
    encode_verified_snapshot(world.image)


def test_salt_secret_is_set_only_once() -> None:
    world = MetadataWorld()
    world.accept(AlterScramUser("alice", (keys(),), secret=b"1" * 32))
    world.accept(AlterScramUser("bob", (keys(),), secret=b"2" * 32))
    assert world.image.salt_secret == b"1" * 32


def test_snapshot_contains_users_and_salt_secret() -> None:
    world = MetadataWorld()
    world.accept(AlterScramUser("alice", (keys(), keys(SHA_512)), secret=b"s" * 32))
    again = decode_snapshot(encode_verified_snapshot(world.image))
    assert again.users.by_name == world.image.users.by_name
    assert again.salt_secret == b"s" * 32
    assert again.state_hash == world.image.state_hash


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (AlterScramUser("", (keys(),)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (AlterScramUser("alice", remove=(SHA_512,)), ErrorCode.RESOURCE_NOT_FOUND),
        (AlterScramUser("bob", remove=(SHA_256,)), ErrorCode.RESOURCE_NOT_FOUND),
        (AlterScramUser("alice", (keys(),), (SHA_256,)), ErrorCode.DUPLICATE_RESOURCE),
        (AlterScramUser("alice", (keys(), keys())), ErrorCode.DUPLICATE_RESOURCE),
        (AlterScramUser("bob", (keys(),), is_first=True), ErrorCode.DUPLICATE_RESOURCE),
        (AlterScramUser("n" * (handlers.USER_NAME_CHARACTERS_MAX + 1), (keys(),)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_invalid_user_change_is_rejected_atomically(command: AlterScramUser, code: ErrorCode) -> None:
    world = MetadataWorld()
    world.accept(AlterScramUser("alice", (keys(),)))
    assert world.reject(command)[0] is code


def test_longest_user_name_is_accepted() -> None:
    MetadataWorld().accept(AlterScramUser("n" * handlers.USER_NAME_CHARACTERS_MAX, (keys(),)))


def test_number_of_users_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "USERS_MAX", 2)
    world = MetadataWorld()
    world.accept(AlterScramUser("a", (keys(),)))
    world.accept(AlterScramUser("b", (keys(),)))
    assert world.reject(AlterScramUser("c", (keys(),)))[0] is ErrorCode.UNACCEPTABLE_CREDENTIAL
    world.accept(AlterScramUser("b", (keys(SHA_512),)))


def test_first_user_is_rejected_if_any_user_exists() -> None:
    world = MetadataWorld()
    world.accept(AlterScramUser("admin", (keys(),), is_first=True))
    assert world.reject(AlterScramUser("admin", (keys(),), is_first=True))[0] is ErrorCode.DUPLICATE_RESOURCE


def test_users_require_security_feature_level() -> None:
    with pytest.raises(KafkaError, match=r"AlterScramUser needs chronik\.version 4"):
        levels.check_command_level(AlterScramUser("a"), levels.DYNAMIC_MEMBERSHIP_LEVEL)
    levels.check_command_level(AlterScramUser("a"), levels.SECURITY_LEVEL)


def test_shape_of_unknown_users_follows_the_distribution_of_credentials() -> None:
    world = MetadataWorld()
    table = world.image.users
    assert table.get_credential_shape_at(SHA_256, 0.5) is None
    assert table.find_most_common_mechanism() is None
    common, rare = CredentialShape(8192, 4, True), CredentialShape(4096, 8, False)
    world.accept(AlterScramUser("a", (keys(iterations=8192, salt=b"abc1"),)))
    world.accept(AlterScramUser("b", (keys(iterations=8192, salt=b"abc2"),)))
    world.accept(AlterScramUser("c", (keys(salt=bytes(8)), keys(SHA_512))))
    assert [table.get_credential_shape_at(SHA_256, position) for position in (0.0, 0.33, 0.34, 0.999)] == [
        rare,
        rare,
        common,
        common,
    ]
    assert table.find_most_common_mechanism() == SHA_256
    world.accept(AlterScramUser("a", remove=(SHA_256,)))
    world.accept(AlterScramUser("b", remove=(SHA_256,)))
    assert {table.get_credential_shape_at(SHA_256, position) for position in (0.0, 0.5, 0.999)} == {rare}
    assert table.find_most_common_mechanism() == SHA_512


def test_delta_names_users_whose_credentials_changed() -> None:
    world = MetadataWorld()
    world.accept(AlterScramUser("a", (keys(), keys(SHA_512))))
    assert world.delta.users == ("a",)
    assert world.delta
    before = world.replay()
    world.accept(AlterScramUser("b", (keys(),)))
    world.accept(AlterScramUser("a", remove=(SHA_256,)))
    assert world.delta.users == ("a",)
    assert diff_images(before, world.image).users == ("a", "b")
    assert diff_images(world.image, Image()).users == ("a", "b")
    assert not diff_images(world.replay(), world.image)


def test_repr_of_credentials_hides_keys() -> None:
    secret = b"top-secret-key-of-thirty-two-byt"
    kept = ScramKeys(SHA_256, b"salt-of-it", secret, secret, 4096)
    credential = ScramCredential("alice", SHA_256, b"salt-of-it", secret, secret, 4096)
    shown = f"{kept} {kept!r} {credential!r} {AlterScramUser('alice', (kept,), secret=secret)!r} {SaltSecret(secret)!r}"
    assert "top-secret" not in shown
    assert "salt-of-it" not in shown


def acl(name: str = "t") -> Acl:
    return Acl(2, name, 3, "User:a", "*", 3, 3)


def test_acl_exists_once_until_deleted() -> None:
    world = MetadataWorld()
    assert world.accept(CreateAcls((acl(), acl(), acl("u")))).value == 2
    assert list(world.delta.acls) == [RecordChange(None, acl()), RecordChange(None, acl("u"))]
    assert world.accept(CreateAcls((acl(),))).value == 0
    assert not world.delta
    assert world.accept(DeleteAcls((acl(), acl(), acl("none")))).value == 1
    assert list(world.delta.acls) == [RecordChange(acl(), None)]
    assert list(world.image.acls) == [acl("u")]
    assert world.replay().state_hash == world.image.state_hash


def test_acls_are_in_snapshots_and_deltas() -> None:
    world = MetadataWorld()
    before = world.image.state_hash
    world.accept(CreateAcls((acl(), acl("u"))))
    image = decode_snapshot(encode_snapshot(world.image.freeze()))
    assert list(image.acls) == [acl(), acl("u")]
    assert image.state_hash == world.image.state_hash != before
    assert diff_images(Image(), image).acls == (RecordChange(None, acl()), RecordChange(None, acl("u")))
    assert diff_images(image, Image()).acls == (RecordChange(acl(), None), RecordChange(acl("u"), None))


def test_number_of_acls_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ACLS_MAX == 100_000
    monkeypatch.setattr(handlers, "ACLS_MAX", 3)
    world = MetadataWorld()
    world.accept(CreateAcls((acl("a"), acl("b"))))
    assert world.reject(CreateAcls((acl("c"), acl("d"))))[0] is ErrorCode.POLICY_VIOLATION
    world.accept(CreateAcls((acl("a"), acl("c"))))


def test_number_of_acls_per_command_is_limited() -> None:
    def sent(count: int) -> Envelope:
        command = CreateAcls(tuple(acl(str(number)) for number in range(count)))
        return decode_command(encode_command(Envelope(NODE, NODE_INCARNATION, 1, 0, command)))

    sent(ACLS_PER_COMMAND_MAX)
    with pytest.raises(UnknownCommandError):
        sent(ACLS_PER_COMMAND_MAX + 1)


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
