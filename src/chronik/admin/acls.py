"""Creation and deletion of ACLs, split into commands that each block the event loop only briefly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chronik.limits import ACL_FILTERS_MAX, ACLS_PER_REQUEST_MAX
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.metadata.commands.security import ACLS_PER_COMMAND_MAX, CreateAcls, DeleteAcls
from chronik.metadata.records import Acl
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.scheduler import Steps, run_in_slices
from chronik.security.acls import AclFilterPattern, find_acl_error

AclOutcome = KafkaError | None


class AclDeletion(NamedTuple):
    """An ACL that matched a deletion filter, and the error if the ACL could not be deleted."""

    acl: Acl
    error: AclOutcome
    """Error that prevented the deletion, in which case the ACL may still exist; None if it was deleted."""


async def create_acls(store: MetadataStore, wanted: Sequence[Acl]) -> list[AclOutcome]:
    """Create ACLs, and return for each ACL an error, or None if it was created or already existed."""
    if len(wanted) > ACLS_PER_REQUEST_MAX:
        message = f"Cannot create more than {ACLS_PER_REQUEST_MAX} acls in a single operation."
        return [KafkaError(ErrorCode.POLICY_VIOLATION, message)] * len(wanted)
    faults = [find_acl_error(acl) for acl in wanted]
    legal = dict.fromkeys(acl for acl, fault in zip(wanted, faults, strict=True) if fault is None)
    outcomes: dict[Acl, AclOutcome] = {}
    for chunk in _split_into_chunks(legal):
        try:
            await store.propose(CreateAcls(chunk))
            outcome = None
        except KafkaError as error:
            outcome = error.without_traceback()
        outcomes.update(dict.fromkeys(chunk, outcome))
    return [
        outcomes[acl] if fault is None else KafkaError(ErrorCode.INVALID_REQUEST, fault)
        for acl, fault in zip(wanted, faults, strict=True)
    ]


async def delete_acls(
    store: MetadataStore, filters: Sequence[AclFilterPattern]
) -> list[list[AclDeletion] | KafkaError]:
    """Delete the ACLs that match the filters, and return the matching ACLs or an error for each filter.

    Raises:
        KafkaError: The first command failed, so nothing was deleted.
    """
    found = await _find_matching_acls(store, filters)
    to_delete = dict.fromkeys(acl for acls in found if isinstance(acls, list) for acl in acls)
    if len(to_delete) > ACLS_PER_REQUEST_MAX:
        message = f"Cannot remove more than {ACLS_PER_REQUEST_MAX} acls in a single delete operation."
        return [KafkaError(ErrorCode.POLICY_VIOLATION, message)] * len(filters)
    errors = await _propose_deletions(store, to_delete)
    return [
        acls if isinstance(acls, KafkaError) else [AclDeletion(acl, errors.get(acl)) for acl in acls] for acls in found
    ]


async def _propose_deletions(store: MetadataStore, to_delete: Iterable[Acl]) -> dict[Acl, AclOutcome]:
    """Propose metadata commands that delete the ACLs, and return the errors of ACLs that may still exist.

    After a failed command, the remaining commands are not proposed, because they would time out as well.

    Raises:
        KafkaError: The first command failed.
    """
    errors: dict[Acl, AclOutcome] = {}
    failure: AclOutcome = None
    for number, chunk in enumerate(_split_into_chunks(to_delete)):
        if failure is None:
            try:
                await store.propose(DeleteAcls(chunk))
                continue
            except KafkaError as error:
                if number == 0:
                    raise
                failure = error.without_traceback()
        errors.update(dict.fromkeys(chunk, failure))
    return errors


async def _find_matching_acls(
    store: MetadataStore, filters: Sequence[AclFilterPattern]
) -> list[list[Acl] | KafkaError]:
    await store.read_barrier()
    found: list[list[Acl] | KafkaError] = []
    pace, scans = YieldTimer(), 0
    for each in filters:
        only = each.exact_acl
        scans += only is None
        if not each.is_valid:
            found.append(
                KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "A filter contains an unknown resource type, pattern type, operation or permission.",
                )
            )
        elif only is not None:
            found.append([only] if only in store.image.acls else [])
        elif scans > ACL_FILTERS_MAX:
            message = f"More than {ACL_FILTERS_MAX} filters that can match several ACLs."
            found.append(KafkaError(ErrorCode.INVALID_REQUEST, message))
        else:
            found.append(await run_in_slices(find_acls(store, each)))
        await pace.yield_if_due()
    return found


def find_acls(store: MetadataStore, wanted: AclFilterPattern) -> Steps[list[Acl]]:
    """Return the ACLs that match the filter, sorted by resource, principal and operation."""
    found: list[Acl] = []
    for chunk in iter_chunks(list(store.image.acls)):
        found += filter(wanted.matches, chunk)
        yield None
    return sorted(found, key=lambda acl: (acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.operation))


def _split_into_chunks(acls: Iterable[Acl]) -> Iterable[tuple[Acl, ...]]:
    all_acls = tuple(acls)
    return (all_acls[first : first + ACLS_PER_COMMAND_MAX] for first in range(0, len(all_acls), ACLS_PER_COMMAND_MAX))
