"""Handlers of ACL commands. `chronik.security` interprets the ACLs."""

from __future__ import annotations

from chronik.limits import ACLS_MAX
from chronik.metadata.commands.acls import CreateAcls, DeleteAcls
from chronik.metadata.errors import CommandRejectedError
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.records import ApplyResult
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode


def create_acls(writer: ImageWriter, command: CreateAcls, index: int) -> ApplyResult:
    """Add the ACLs that do not exist yet."""
    known = writer.image.acls
    new = [acl for acl in dict.fromkeys(command.acls) if acl not in known]
    if len(known) + len(new) > ACLS_MAX:
        raise CommandRejectedError(ErrorCode.POLICY_VIOLATION, f"there would be more than {ACLS_MAX} ACLs")
    for acl in new:
        writer.add_acl(acl)
    return ApplyResult(value=len(new))


def delete_acls(writer: ImageWriter, command: DeleteAcls, index: int) -> ApplyResult:
    """Remove the ACLs that exist."""
    existing = [acl for acl in dict.fromkeys(command.acls) if acl in writer.image.acls]
    for acl in existing:
        writer.remove_acl(acl)
    return ApplyResult(value=len(existing))


HANDLERS: CommandHandlers = {
    CreateAcls: create_acls,
    DeleteAcls: delete_acls,
}
