"""ImportSecurity (Chronik API key 20007): imports users, ACLs and quotas; existing ones are kept."""

from __future__ import annotations

from chronik.admin.quotas import QuotaChangeRequest
from chronik.admin.security_import import check_import_in_progress, import_acls, import_quotas, import_users
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.commands.security import ScramKeys
from chronik.metadata.records import Acl
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.import_security import (
    ImportedAcl,
    ImportedQuotas,
    ImportedUser,
    ImportSecurityRequest,
    ImportSecurityResponse,
)
from chronik.security.quotas.entities import QuotaValueChange


async def handle(services: Services, request: ImportSecurityRequest, context: RequestContext) -> ImportSecurityResponse:
    return await import_security(services.store, request)


async def import_security(store: MetadataStore, request: ImportSecurityRequest) -> ImportSecurityResponse:
    """Import users, ACLs and quotas; errors are returned in the response."""
    try:
        await store.read_barrier()
        check_import_in_progress(store, request.import_id)
        await import_users(store, {user.name: _decode_scram_keys(user) for user in request.users})
        await import_acls(store, [_decode_imported_acl(each) for each in request.acls])
        await import_quotas(store, [_decode_imported_quotas(each) for each in request.quotas])
    except KafkaError as error:
        return ImportSecurityResponse(**build_error_fields(error))
    return ImportSecurityResponse()


def _decode_scram_keys(user: ImportedUser) -> tuple[ScramKeys, ...]:
    return tuple(
        ScramKeys(each.mechanism, each.salt, each.stored_key, each.server_key, each.iterations) for each in user.keys
    )


def _decode_imported_acl(acl: ImportedAcl) -> Acl:
    return Acl(acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)


def _decode_imported_quotas(quotas: ImportedQuotas) -> QuotaChangeRequest:
    entity = tuple((each.kind, each.name) for each in quotas.entity)
    return QuotaChangeRequest(entity, [QuotaValueChange(each.key, each.value) for each in quotas.values])
