"""Creation and deletion of many ACLs, split into several commands."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from chronik.admin.acls import create_acls, delete_acls
from chronik.limits import ACL_FILTERS_MAX, ACLS_PER_REQUEST_MAX
from chronik.metadata.commands.security import ACLS_PER_COMMAND_MAX
from chronik.metadata.image import Image
from chronik.metadata.records import Acl, ApplyResult
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.acls import ANY_VALUE, AclFilterPattern
from tests.metadata.metadata_world import MetadataWorld

EVERYTHING = AclFilterPattern(ANY_VALUE, None, ANY_VALUE, None, None, ANY_VALUE, ANY_VALUE)


class Store:
    """A fake store that accepts a limited number of commands."""

    def __init__(self) -> None:
        self.world = MetadataWorld()
        self.command_sizes: list[int] = []
        self.commands_max = 1_000_000
        """The number of commands after which proposals time out."""

    @property
    def image(self) -> Image:
        return self.world.image

    async def read_barrier(self, seconds: float = 1.0) -> None:
        pass

    async def propose(self, command: Any) -> ApplyResult:
        if len(self.command_sizes) == self.commands_max:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no majority")
        self.command_sizes.append(len(command.acls))
        return self.world.accept(command)


def acl(number: int) -> Acl:
    return Acl(2, f"t{number}", 3, "User:a", "*", 3, 3)


def created(store: Store, *acls: Acl) -> list[ErrorCode | None]:
    outcomes = asyncio.run(create_acls(cast(MetadataStore, store), acls))
    return [None if outcome is None else outcome.code for outcome in outcomes]


def deleted(store: Store, *filters: AclFilterPattern) -> list[int | ErrorCode]:
    found = asyncio.run(delete_acls(cast(MetadataStore, store), filters))
    return [each.code if isinstance(each, KafkaError) else len(each) for each in found]


def test_partial_acl_deletion_reports_error_of_each_remaining_acl() -> None:
    store, acls = Store(), [acl(number) for number in range(3 * ACLS_PER_COMMAND_MAX)]
    created(store, *acls)
    store.commands_max = len(store.command_sizes) + 1
    named = EVERYTHING._replace(name="t5")
    (everything, one) = asyncio.run(delete_acls(cast(MetadataStore, store), [EVERYTHING, named]))
    assert isinstance(everything, list)
    assert {each.acl for each in everything if each.error is not None} == set(store.image.acls)
    assert len(everything) - len(store.image.acls) == ACLS_PER_COMMAND_MAX
    assert {each.error.code for each in everything if each.error is not None} == {ErrorCode.REQUEST_TIMED_OUT}
    assert isinstance(one, list)
    assert [(each.acl, each.error is None) for each in one] == [(acl(5), acl(5) not in store.image.acls)]


def test_acl_deletion_raises_if_first_command_fails() -> None:
    store = Store()
    created(store, acl(1))
    store.commands_max = len(store.command_sizes)
    with pytest.raises(KafkaError, match="no majority"):
        deleted(store, EVERYTHING)
    assert list(store.image.acls) == [acl(1)]


def test_acl_limit_per_request_is_enforced() -> None:
    store, acls = Store(), [acl(number) for number in range(ACLS_PER_REQUEST_MAX + 1)]
    assert set(created(store, *acls)) == {ErrorCode.POLICY_VIOLATION}
    assert set(created(store, *acls[1:])) == {None}
    assert store.command_sizes == [ACLS_PER_COMMAND_MAX] * (ACLS_PER_REQUEST_MAX // ACLS_PER_COMMAND_MAX)
    created(store, acls[0])
    assert deleted(store, EVERYTHING) == [ErrorCode.POLICY_VIOLATION]
    assert len(store.image.acls) == ACLS_PER_REQUEST_MAX + 1
    assert deleted(store, EVERYTHING._replace(name="t0"), EVERYTHING._replace(name="none")) == [1, 0]
    assert deleted(store, EVERYTHING) == [ACLS_PER_REQUEST_MAX]
    assert not store.image.acls


def test_invalid_acl_does_not_affect_others_of_the_request() -> None:
    store = Store()
    assert created(store, acl(1), Acl(2, "", 3, "User:a", "*", 3, 3), acl(1)) == [None, ErrorCode.INVALID_REQUEST, None]
    assert list(store.image.acls) == [acl(1)]
    assert deleted(store, EVERYTHING._replace(operation=0), EVERYTHING) == [ErrorCode.INVALID_REQUEST, 1]


def test_number_of_wildcard_acl_filters_is_limited() -> None:
    store = Store()
    created(store, acl(1))
    only = AclFilterPattern(2, "t1", 3, "User:a", "*", 3, 3)
    open_ones = [EVERYTHING._replace(name="none")] * ACL_FILTERS_MAX
    assert deleted(store, *open_ones, EVERYTHING._replace(name="none"))[-2:] == [0, ErrorCode.INVALID_REQUEST]
    assert deleted(store, *open_ones, *[only._replace(name="t2")] * 1000, only)[-1] == 1
