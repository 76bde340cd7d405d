"""ACL commands."""

from __future__ import annotations

import pytest

from chronik.limits import ACLS_MAX
from chronik.metadata.commands.acls import ACLS_PER_COMMAND_MAX, CreateAcls, DeleteAcls
from chronik.metadata.commands.envelope import Envelope, UnknownCommandError, decode_command, encode_command
from chronik.metadata.delta import RecordChange, diff_images
from chronik.metadata.handlers import acls as handlers
from chronik.metadata.image import Image
from chronik.metadata.records import Acl
from chronik.metadata.snapshot import decode_snapshot, encode_snapshot
from chronik.protocol.errors import ErrorCode

from .metadata_world import NODE, NODE_INCARNATION, MetadataWorld


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
