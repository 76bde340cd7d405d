"""Handlers of ACL commands. `chronik.security` interprets the ACLs."""

from __future__ import annotations

from chronik.limits import ACLS_MAX
from chronik.metadata.commands.acls import CreateAcls, DeleteAcls
from chronik.metadata.handlers import Handlers
from chronik.metadata.records import Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode


def create_acls(writer: ImageWriter, command: CreateAcls, index: int) -> Result:
    """Add the ACLs that do not exist yet."""
    known = writer.image.acls
    new = [acl for acl in dict.fromkeys(command.acls) if acl not in known]
    if len(known) + len(new) > ACLS_MAX:
        raise Rejected(ErrorCode.POLICY_VIOLATION, f"there would be more than {ACLS_MAX} ACLs")
    for acl in new:
        writer.add_acl(acl)
    return Result(value=len(new))


def delete_acls(writer: ImageWriter, command: DeleteAcls, index: int) -> Result:
    """Remove the ACLs that exist."""
    existing = [acl for acl in dict.fromkeys(command.acls) if acl in writer.image.acls]
    for acl in existing:
        writer.remove_acl(acl)
    return Result(value=len(existing))


HANDLERS: Handlers = {
    CreateAcls: create_acls,
    DeleteAcls: delete_acls,
}
