"""Import of users, ACLs and quotas. Existing ones of the cluster are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from chronik.metadata.image import Image
from chronik.metadata.records import DEFAULT_ENTITY, Acl, Entity, QuotaValues, ScramCredential
from chronik.protocol.messages.import_security import (
    ImportedAcl,
    ImportedEntity,
    ImportedKeys,
    ImportedQuota,
    ImportedQuotas,
    ImportedUser,
    ImportSecurityRequest,
)
from chronik.wording import pluralize

T = TypeVar("T")

ENTRIES_PER_REQUEST: Final = 500
"""The maximum number of users, ACLs or quotas per ImportSecurity request."""


class SecurityMetadata(NamedTuple):
    """The users, ACLs and quotas of an import source."""

    users: dict[str, dict[int, ScramCredential]]
    """SCRAM credentials by user name and mechanism."""
    acls: list[Acl]
    quotas: dict[Entity, QuotaValues]

    @property
    def is_empty(self) -> bool:
        return not (self.users or self.acls or self.quotas)

    def __str__(self) -> str:
        users, acls = pluralize(len(self.users), "user"), pluralize(len(self.acls), "ACL")
        return f"{users}, {acls}, quotas of {pluralize(len(self.quotas), 'entity', 'entities')}"


def read_security_metadata(image: Image) -> SecurityMetadata:
    """Return the users, ACLs and quotas in a metadata image."""
    users = {name: dict(image.users.credentials(name)) for name in sorted(image.users.by_name)}
    return SecurityMetadata(users, list(image.acls), dict(sorted(image.quotas.items())))


def build_security_requests(security: SecurityMetadata, import_id: bytes) -> Iterator[ImportSecurityRequest]:
    """Yield the requests that import users, ACLs and quotas."""
    for users in _split_into_chunks(list(security.users.items())):
        yield ImportSecurityRequest(import_id=import_id, users=[_user(*each) for each in users])
    for acls in _split_into_chunks(security.acls):
        yield ImportSecurityRequest(import_id=import_id, acls=[_acl(each) for each in acls])
    for quotas in _split_into_chunks(list(security.quotas.items())):
        yield ImportSecurityRequest(import_id=import_id, quotas=[_build_imported_quotas(*each) for each in quotas])


def _split_into_chunks(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(entries), ENTRIES_PER_REQUEST):
        yield entries[first : first + ENTRIES_PER_REQUEST]


def _user(name: str, credentials: dict[int, ScramCredential]) -> ImportedUser:
    return ImportedUser(
        name=name,
        keys=[
            ImportedKeys(
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=each.salt,
                stored_key=each.stored_key,
                server_key=each.server_key,
            )
            for each in credentials.values()
        ],
    )


def _acl(acl: Acl) -> ImportedAcl:
    return ImportedAcl(
        resource_type=acl.resource_type,
        name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def _build_imported_quotas(entity: Entity, values: QuotaValues) -> ImportedQuotas:
    return ImportedQuotas(
        entity=[ImportedEntity(kind=kind, name=None if name == DEFAULT_ENTITY else name) for kind, name in entity],
        values=[ImportedQuota(key=key, value=value) for key, value in values.items()],
    )


def find_security_conflicts(security: SecurityMetadata, image: Image) -> list[str]:
    """Return one sentence for each user or quota of the source that differs from one with the same name in the cluster.

    The cluster keeps them. ACLs have no names, so they cannot conflict.
    """
    found = [
        f"user {name} already exists with another password or other mechanisms"
        for name, credentials in security.users.items()
        if image.users.credentials(name) not in ({}, credentials)
    ]
    for entity, values in security.quotas.items():
        if image.quotas.get(entity, values) != values:
            found.append(f"{_format_entity(entity)} already has other quotas")
    return found


def find_missing_security(security: SecurityMetadata, image: Image) -> list[str]:
    """Return one sentence for each user, ACL or quota of the source that does not exist in the cluster."""
    found = [f"user {name} is missing" for name in security.users if not image.users.credentials(name)]
    found += [f"an ACL of {acl.principal} for {acl.name} is missing" for acl in security.acls if acl not in image.acls]
    found += [
        f"quotas of {_format_entity(entity)} are missing" for entity in security.quotas if entity not in image.quotas
    ]
    return found


def _format_entity(entity: Entity) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)
