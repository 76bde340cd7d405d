"""Handler of the command that alters client quotas."""

from __future__ import annotations

from chronik.limits import QUOTA_ENTITIES_MAX
from chronik.metadata.commands.quotas import AlterQuotas, QuotaAlteration
from chronik.metadata.handlers import Handlers
from chronik.metadata.records import Failure, Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.security.quotas import entity_of
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode


def alter_quotas(writer: ImageWriter, command: AlterQuotas, index: int) -> Result:
    """Alter the quotas of each entity separately."""
    failures: list[Failure] = []
    for item, alteration in enumerate(command.alterations):
        try:
            _alter(writer, alteration)
        except Rejected as rejected:
            failures.append(Failure(item, rejected.code, rejected.message))
    return Result(failures=tuple(failures))


def _alter(writer: ImageWriter, alteration: QuotaAlteration) -> None:
    entity = entity_of(alteration.entity)
    old = writer.image.quotas.get(entity)
    if old is None and alteration.set and len(writer.image.quotas) >= QUOTA_ENTITIES_MAX:
        raise Rejected(ErrorCode.POLICY_VIOLATION, f"there are quotas for {QUOTA_ENTITIES_MAX} entities already")
    kept = {key: value for key, value in (old or {}).items() if key not in alteration.remove}
    new = {key: float(value) for key, value in sorted({**kept, **alteration.set}.items())}
    if new != (old or {}):
        writer.set_quotas(entity, new)


HANDLERS: Handlers = {AlterQuotas: alter_quotas}
