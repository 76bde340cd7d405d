"""ACLs are added and removed: as many as a request names, in commands that each take one turn of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chronik.limits import ACL_FILTERS_MAX, ACLS_PER_REQUEST_MAX
from chronik.metadata.commands.acls import ACLS_PER_COMMAND_MAX, CreateAcls, DeleteAcls
from chronik.metadata.records import Acl
from chronik.metadata.slices import Pace, in_pieces
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.scheduler import Steps, run_in_slices
from chronik.security.acls import Filter, fault_of

Outcome = KafkaError | None


class Deleted(NamedTuple):
    acl: Acl
    error: Outcome
    """Why it may still be there."""


async def create_acls(store: MetadataStore, wanted: Sequence[Acl]) -> list[Outcome]:
    """Returns why each cannot be there; None for those that are, from before or from now on."""
    if len(wanted) > ACLS_PER_REQUEST_MAX:
        told = f"Cannot create more than {ACLS_PER_REQUEST_MAX} acls in a single operation."
        return [KafkaError(ErrorCode.POLICY_VIOLATION, told)] * len(wanted)
    faults = [fault_of(acl) for acl in wanted]
    legal = dict.fromkeys(acl for acl, fault in zip(wanted, faults, strict=True) if fault is None)
    outcomes: dict[Acl, Outcome] = {}
    for some in _portions(legal):
        try:
            await store.propose(CreateAcls(some))
            outcome = None
        except KafkaError as error:
            outcome = error.without_frames()
        outcomes.update(dict.fromkeys(some, outcome))
    return [
        outcomes[acl] if fault is None else KafkaError(ErrorCode.INVALID_REQUEST, fault)
        for acl, fault in zip(wanted, faults, strict=True)
    ]


async def delete_acls(store: MetadataStore, filters: Sequence[Filter]) -> list[list[Deleted] | KafkaError]:
    """Returns for each filter what it has found, and whether that is gone; or why nothing was looked for. Raises
    KafkaError when the cluster does not agree on any of it."""
    found = await _found(store, filters)
    gone = dict.fromkeys(acl for acls in found if isinstance(acls, list) for acl in acls)
    if len(gone) > ACLS_PER_REQUEST_MAX:
        told = f"Cannot remove more than {ACLS_PER_REQUEST_MAX} acls in a single delete operation."
        return [KafkaError(ErrorCode.POLICY_VIOLATION, told)] * len(filters)
    errors = await _delete(store, gone)
    return [acls if isinstance(acls, KafkaError) else [Deleted(acl, errors.get(acl)) for acl in acls] for acls in found]


async def _delete(store: MetadataStore, gone: Iterable[Acl]) -> dict[Acl, Outcome]:
    """Returns those that may still be there. After one portion has failed, no other is tried: each would fail as late.
    Raises KafkaError when it is the first one."""
    errors: dict[Acl, Outcome] = {}
    failure: Outcome = None
    for number, some in enumerate(_portions(gone)):
        if failure is None:
            try:
                await store.propose(DeleteAcls(some))
                continue
            except KafkaError as error:
                if number == 0:
                    raise
                failure = error.without_frames()
        errors.update(dict.fromkeys(some, failure))
    return errors


async def _found(store: MetadataStore, filters: Sequence[Filter]) -> list[list[Acl] | KafkaError]:
    await store.read_barrier()
    found: list[list[Acl] | KafkaError] = []
    pace, scans = Pace(), 0
    for each in filters:
        only = each.only
        scans += only is None
        if not each.is_known:
            found.append(KafkaError(ErrorCode.INVALID_REQUEST, "A filter names what there is not."))
        elif only is not None:
            found.append([only] if only in store.image.acls else [])
        elif scans > ACL_FILTERS_MAX:
            told = f"More than {ACL_FILTERS_MAX} filters that may find several acls each."
            found.append(KafkaError(ErrorCode.INVALID_REQUEST, told))
        else:
            found.append(await run_in_slices(matching(store, each)))
        await pace.yield_if_due()
    return found


def matching(store: MetadataStore, wanted: Filter) -> Steps[list[Acl]]:
    """Return what a filter finds, in the order in which a list of it is easy to read."""
    found: list[Acl] = []
    for some in in_pieces(list(store.image.acls)):
        found += filter(wanted.finds, some)
        yield None
    return sorted(found, key=lambda acl: (acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.operation))


def _portions(acls: Iterable[Acl]) -> Iterable[tuple[Acl, ...]]:
    every = tuple(acls)
    return (every[first : first + ACLS_PER_COMMAND_MAX] for first in range(0, len(every), ACLS_PER_COMMAND_MAX))
