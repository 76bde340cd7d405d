"""AlterUserScramCredentials (API key 51): updates or deletes SCRAM credentials, atomically for each user."""

from __future__ import annotations

from chronik.admin.users import UserChange, alter_user
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.chunking import YieldTimer
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    services: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    response = AlterUserScramCredentialsResponse()
    pace = YieldTimer()
    for name, change in (await _group_credential_changes_by_user(request, pace)).items():
        await pace.yield_if_due()
        try:
            await alter_user(services.store, name, change)
            outcome = build_error_fields(None)
        except KafkaError as error:
            outcome = build_error_fields(error)
        response.results.append(AlterUserScramCredentialsResult(user=name, **outcome))
    return response


async def _group_credential_changes_by_user(
    request: AlterUserScramCredentialsRequest, pace: YieldTimer
) -> dict[str, UserChange]:
    changes: dict[str, UserChange] = {}
    for deletion in request.deletions:
        changes.setdefault(deletion.name, UserChange()).remove.append(deletion.mechanism)
        await pace.yield_if_due()
    for put in request.upsertions:
        change = changes.setdefault(put.name, UserChange())
        change.put.append((put.mechanism, put.iterations, bytes(put.salt), bytes(put.salted_password)))
        await pace.yield_if_due()
    return changes


def failure(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    """Return an AlterUserScramCredentials response with the error code for each requested user."""
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    error = KafkaError(code)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, **build_error_fields(error)) for name in dict.fromkeys(names)
        ]
    )
