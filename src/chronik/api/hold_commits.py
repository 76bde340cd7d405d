"""HoldCommits (Chronik API key 20006): suspends or resumes the commit of transactions, for consistent backups."""

from __future__ import annotations

from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.commands.transactions import HoldCommits, ReleaseCommits
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.hold_commits import HoldCommitsRequest, HoldCommitsResponse


async def handle(services: Services, request: HoldCommitsRequest, context: RequestContext) -> HoldCommitsResponse:
    try:
        if request.hold:
            result = await services.store.propose(ReleaseCommits(request.hold))
            return HoldCommitsResponse(hold=request.hold, was_in_force=bool(result.value))
        return HoldCommitsResponse(hold=(await services.store.propose(HoldCommits())).value)
    except KafkaError as error:
        return HoldCommitsResponse(**build_error_fields(error))
