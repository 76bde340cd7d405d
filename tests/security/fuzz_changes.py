"""Fuzzing of a broker with requests that alter users, quotas and ACLs, compared with a model of the accepted changes.

The requests are well-formed, but their contents are often invalid.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from chronik.metadata.records import Acl
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_client_quotas import AlteredEntity, QuotaAlterationEntry, QuotaOperation
from chronik.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from chronik.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from chronik.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from chronik.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from chronik.security.acls import AclFilterPattern, find_acl_error
from tests.api.quota_requests import alter_quotas, describe_quotas
from tests.raw import RawClient
from tests.security.fuzz_acls import any_acl, any_filter
from tests.security.naive_authorizer import filter_matches

DECLARED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.DUPLICATE_RESOURCE,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)
"""Errors that invalid requests may get; none of them reports a failure of the broker."""

USERS: Final = ("bob", "b,o=b", "", " ", "é\0\n", "u" * 1024, "u" * 1025, "u" * 30_000)
MECHANISMS: Final = (1, 1, 2, 2, 0, 3, -1, 127)
ITERATIONS: Final = (4096, 4096, 16384, 4095, 16385, 0, -1, 2**31 - 1)
SIZES: Final = (26, 32, 64, 1, 1024, 1025, 0, 20_000)

KINDS: Final = ("user", "client-id", "ip", "", "group", "USER")
NAMES: Final = ("bob", "", "é", "<default>", "10.0.0.7", "::ffff:10.0.0.8", "10.0.0.256", "n" * 30_000, "1", "a/b")
KEYS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    *("connection_creation_rate", "", "k" * 1000),
)
VALUES: Final = (1.0, 1e6, 0.5, 1e-9, 0.0, -1.0, 1e308, 2.0**63, 2.0**31, float("nan"), float("inf"), -float("inf"))


class Changes:
    """Sends requests, and keeps a model of the accepted changes."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._rng = random.Random(f"changes {seed}")
        self._client = RawClient(bootstrap)
        self._users: dict[str, dict[int, int]] = {}
        self._quotas: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}
        self._acls: dict[Acl, None] = {}
        self.codes: Counter[str] = Counter()

    def run(self, count: int) -> Counter[str]:
        """Send `count` requests. Raises AssertionError for an unexpected response."""
        kinds: tuple[Callable[[], None], ...] = (self._alter_users, self._alter_quotas, self._create, self._delete)
        with self._client:
            self._load_users()
            for number in range(count):
                self._rng.choice(kinds)()
                self._describe()
                if number % 50 == 49:
                    self._compare()
            self._compare()
        return self.codes

    def _load_users(self) -> None:
        """Add existing users to the model."""
        self._users = self._known_users()

    def _count_error(self, code: int) -> ErrorCode:
        found = ErrorCode(code)
        assert found in DECLARED, found
        self.codes[found.name] += 1
        return found

    # Users

    def _alter_users(self) -> None:
        rng = self._rng
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=rng.choice(USERS), mechanism=rng.choice(MECHANISMS))
                for _ in range(rng.choice((0, 0, 1, 2)))
            ],
            upsertions=[self._credential() for _ in range(rng.choice((0, 1, 1, 1, 3)))],
        )
        answer = self._client.request(request, 0, AlterUserScramCredentialsResponse)
        named = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
        assert Counter(each.user for each in answer.results) == Counter(named)
        for result in answer.results:
            if self._count_error(result.error_code) is ErrorCode.NONE:
                self._apply_user(result.user, request)

    def _credential(self) -> ScramCredentialUpsertion:
        rng = self._rng
        is_valid = rng.random() < 0.4
        return ScramCredentialUpsertion(
            name=rng.choice(USERS[:3] if is_valid else USERS),
            mechanism=rng.choice((1, 2) if is_valid else MECHANISMS),
            iterations=rng.choice((4096, 16384) if is_valid else ITERATIONS),
            salt=rng.randbytes(rng.choice((1, 26) if is_valid else SIZES)),
            salted_password=rng.randbytes(rng.choice((32, 64) if is_valid else SIZES)),
        )

    def _apply_user(self, name: str, request: AlterUserScramCredentialsRequest) -> None:
        current = self._users.setdefault(name, {})
        for removed in request.deletions:
            if removed.name == name:
                del current[removed.mechanism]
        current |= {put.mechanism: put.iterations for put in request.upsertions if put.name == name}
        if not current:
            del self._users[name]

    def _known_users(self) -> dict[str, dict[int, int]]:
        request = DescribeUserScramCredentialsRequest(users=None)
        answer = self._client.request(request, 0, DescribeUserScramCredentialsResponse)
        return {
            each.user: {info.mechanism: info.iterations for info in each.credential_infos} for each in answer.results
        }

    # Quotas

    def _alter_quotas(self) -> None:
        rng = self._rng
        entries = [self._quota() for _ in range(rng.choice((1, 1, 2, 4)))]
        # A default quota would apply to this client, too, and throttle it.
        affects_us = any(part.entity_name is None for each in entries for part in each.entity)
        validate_only = affects_us or rng.random() < 0.2
        answered = alter_quotas(self._client, *entries, validate_only=validate_only, version=rng.randrange(2))
        outcomes = {entity: self._count_error(code) for entity, code in answered}
        for each in entries:
            entity = tuple((part.entity_type, part.entity_name) for part in each.entity)
            if outcomes.get(entity) is ErrorCode.NONE and not validate_only:
                self._apply_quota(frozenset(entity), each)

    def _quota(self) -> QuotaAlterationEntry:
        rng = self._rng
        is_valid = rng.random() < 0.4
        kinds = rng.sample(KINDS[:2], rng.choice((1, 2))) if is_valid else rng.choices(KINDS, k=rng.randrange(4))
        keys = rng.sample(KEYS[:4], 2) if is_valid else rng.choices(KEYS, k=rng.randrange(4))
        names = ("bob", "é") if is_valid else (*NAMES, None)
        return QuotaAlterationEntry(
            entity=[AlteredEntity(entity_type=kind, entity_name=rng.choice(names)) for kind in kinds],
            ops=[
                QuotaOperation(key=key, value=rng.choice(VALUES[:2] if is_valid else VALUES), remove=rng.random() < 0.3)
                for key in keys
            ],
        )

    def _apply_quota(self, entity: frozenset[tuple[str, str | None]], entry: QuotaAlterationEntry) -> None:
        current = self._quotas.setdefault(entity, {})
        for operation in entry.ops:
            if operation.remove:
                current.pop(operation.key, None)
            else:
                current[operation.key] = operation.value
        if not current:
            del self._quotas[entity]

    # ACLs

    def _create(self) -> None:
        acls = [any_acl(self._rng) for _ in range(self._rng.choice((1, 2, 5)))]
        request = CreateAclsRequest(creations=[_creation(acl) for acl in acls])
        answer = self._client.request(request, self._rng.randint(1, 3), CreateAclsResponse)
        for acl, result in zip(acls, answer.results, strict=True):
            code = self._count_error(result.error_code)
            assert (code is ErrorCode.NONE) == (find_acl_error(acl) is None), (acl, code)
            if code is ErrorCode.NONE:
                self._acls[acl] = None

    def _delete(self) -> None:
        filters = [any_filter(self._rng) for _ in range(self._rng.choice((1, 1, 3)))]
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(each)) for each in filters])
        answer = self._client.request(request, self._rng.randint(1, 3), DeleteAclsResponse)
        removed: set[Acl] = set()
        for wanted, result in zip(filters, answer.filter_results, strict=True):
            code = self._count_error(result.error_code)
            expected = {acl for acl in self._acls if filter_matches(wanted, acl)} if code is ErrorCode.NONE else set()
            found = {
                _acl(each, each.resource_type, each.resource_name, each.pattern_type) for each in result.matching_acls
            }
            assert found == expected, wanted
            removed |= found
        for acl in removed:
            del self._acls[acl]

    def _describe(self) -> None:
        wanted = any_filter(self._rng)
        request = DescribeAclsRequest(**_filter_fields(wanted))
        answer = self._client.request(request, self._rng.randint(1, 3), DescribeAclsResponse)
        if self._count_error(answer.error_code) is ErrorCode.NONE:
            found = {
                _acl(each, resource.resource_type, resource.resource_name, resource.pattern_type)
                for resource in answer.resources
                for each in resource.acls
            }
            assert found == {acl for acl in self._acls if filter_matches(wanted, acl)}, wanted

    def _compare(self) -> None:
        assert self._known_users() == self._users
        assert {frozenset(entity): values for entity, values in describe_quotas(self._client).items()} == self._quotas


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter_fields(wanted: AclFilterPattern) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(found: Any, resource_type: int, name: str, pattern_type: int) -> Acl:
    return Acl(resource_type, name, pattern_type, found.principal, found.host, found.operation, found.permission_type)
