"""Handlers of the commands that change ACLs, client quotas and SCRAM users. `chronik.security` interprets them."""

from __future__ import annotations

from typing import Final

from chronik.limits import ACLS_MAX, QUOTA_ENTITIES_MAX
from chronik.metadata.commands.security import AlterQuotas, AlterScramUser, CreateAcls, DeleteAcls, QuotaAlteration
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.records import (
    ApplyResult,
    CommandRejectedError,
    ItemFailure,
    ScramCredential,
    normalize_quota_entity,
)
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

USERS_MAX: Final = 100_000
"""The maximum number of users, which bounds memory usage and snapshot size."""

USER_NAME_CHARACTERS_MAX: Final = 1024
"""The maximum length of a user name, which appears in log lines, ACLs and snapshots.

Names from certificates have a few hundred characters.
"""


def create_acls(writer: ImageWriter, command: CreateAcls, index: int) -> ApplyResult:
    """Apply a CreateAcls command: add the ACLs that do not exist yet."""
    known = writer.image.acls
    new = [acl for acl in dict.fromkeys(command.acls) if acl not in known]
    if len(known) + len(new) > ACLS_MAX:
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, f"there would be more than {ACLS_MAX} ACLs")
    for acl in new:
        writer.add_acl(acl)
    return ApplyResult(value=len(new))


def delete_acls(writer: ImageWriter, command: DeleteAcls, index: int) -> ApplyResult:
    """Apply a DeleteAcls command: remove the ACLs that exist."""
    existing = [acl for acl in dict.fromkeys(command.acls) if acl in writer.image.acls]
    for acl in existing:
        writer.remove_acl(acl)
    return ApplyResult(value=len(existing))


def alter_quotas(writer: ImageWriter, command: AlterQuotas, index: int) -> ApplyResult:
    """Apply an AlterQuotas command: change the client quotas of each entity separately."""
    failures: list[ItemFailure] = []
    for item, alteration in enumerate(command.alterations):
        try:
            _alter_quotas_of_entity(writer, alteration)
        except CommandRejectedError as rejected:
            failures.append(ItemFailure(item, rejected.code, rejected.message))
    return ApplyResult(failures=tuple(failures))


def _alter_quotas_of_entity(writer: ImageWriter, alteration: QuotaAlteration) -> None:
    entity = normalize_quota_entity(alteration.entity)
    old = writer.image.quotas.get(entity)
    if old is None and alteration.set and len(writer.image.quotas) >= QUOTA_ENTITIES_MAX:
        raise CommandRejectedError(
            ErrorCode.POLICY_VIOLATION, f"there are quotas for {QUOTA_ENTITIES_MAX} entities already"
        )
    kept = {key: value for key, value in (old or {}).items() if key not in alteration.remove}
    new = {key: float(value) for key, value in sorted({**kept, **alteration.set}.items())}
    if new != (old or {}):
        writer.set_quotas(entity, new)


def alter_scram_user(writer: ImageWriter, command: AlterScramUser, index: int) -> ApplyResult:
    """Apply an AlterScramUser command: add, replace or remove a user's SCRAM credentials."""
    users = writer.image.users
    if not command.name:
        raise CommandRejectedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(command.name) > USER_NAME_CHARACTERS_MAX:
        message = f"a user's name of more than {USER_NAME_CHARACTERS_MAX} characters"
        raise CommandRejectedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if command.is_first and users.by_name:
        raise CommandRejectedError(ErrorCode.DUPLICATE_RESOURCE, "there are users already")
    if command.put and command.name not in users.by_name and len(users.by_name) >= USERS_MAX:
        raise CommandRejectedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"there are {USERS_MAX} users already")
    named = [*(keys.mechanism for keys in command.put), *command.remove]
    if len(set(named)) != len(named):
        raise CommandRejectedError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    if not set(command.remove) <= users.credentials(command.name).keys():
        raise CommandRejectedError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    if command.secret and not writer.image.salt_secret:
        writer.set_salt_secret(command.secret)
    for mechanism in command.remove:
        writer.remove_credential(command.name, mechanism)
    for keys in command.put:
        writer.put_credential(
            ScramCredential(command.name, keys.mechanism, keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        )
    return ApplyResult()


HANDLERS: CommandHandlers = {
    CreateAcls: create_acls,
    DeleteAcls: delete_acls,
    AlterQuotas: alter_quotas,
    AlterScramUser: alter_scram_user,
}
