"""Handler of the command that alters client quotas."""

from __future__ import annotations

from chronik.limits import QUOTA_ENTITIES_MAX
from chronik.metadata.commands.quotas import AlterQuotas, QuotaAlteration
from chronik.metadata.errors import CommandRejectedError
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.records import ApplyResult, ItemFailure
from chronik.metadata.security.quotas import normalize_entity
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode


def alter_quotas(writer: ImageWriter, command: AlterQuotas, index: int) -> ApplyResult:
    """Alter the quotas of each entity separately."""
    failures: list[ItemFailure] = []
    for item, alteration in enumerate(command.alterations):
        try:
            _alter(writer, alteration)
        except CommandRejectedError as rejected:
            failures.append(ItemFailure(item, rejected.code, rejected.message))
    return ApplyResult(failures=tuple(failures))


def _alter(writer: ImageWriter, alteration: QuotaAlteration) -> None:
    entity = normalize_entity(alteration.entity)
    old = writer.image.quotas.get(entity)
    if old is None and alteration.set and len(writer.image.quotas) >= QUOTA_ENTITIES_MAX:
        raise CommandRejectedError(
            ErrorCode.POLICY_VIOLATION, f"there are quotas for {QUOTA_ENTITIES_MAX} entities already"
        )
    kept = {key: value for key, value in (old or {}).items() if key not in alteration.remove}
    new = {key: float(value) for key, value in sorted({**kept, **alteration.set}.items())}
    if new != (old or {}):
        writer.set_quotas(entity, new)


HANDLERS: CommandHandlers = {AlterQuotas: alter_quotas}
