"""Authorization of operations of the schema registry: ACLs on subjects and on the cluster.

The name of a resource is the normalized name of a subject, or of a context such as `:.lab:`. The global config and mode
belong to the cluster.
"""

from __future__ import annotations

from chronik.metadata.schemas import GLOBAL_CONTEXT, split_subject
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.registry.errors import AccessDeniedError
from chronik.registry.service import SubjectFilter, accept_all
from chronik.registry.subjects import is_default_context, normalize_subject
from chronik.request_reply import ConnectedClient
from chronik.security import audit
from chronik.security.authorizer import Authorizer


class RegistryAccess:
    """The permissions of a client. Denials are written to the audit log."""

    def __init__(self, authorizer: Authorizer | None, client: ConnectedClient, api: str) -> None:
        self._authorizer = authorizer
        self._client = client
        self._api = api

    def require(self, operation: AclOperation, subject: str) -> None:
        """Raise AccessDeniedError unless the client may perform the operation on the subject or context."""
        if not self.is_authorized(operation, subject):
            raise self.deny(operation, subject)

    def is_authorized(self, operation: AclOperation, subject: str) -> bool:
        """Return whether the client may perform the operation on the subject or context. Denials are not audited."""
        return self._is_authorized(operation, AclResourceType.SUBJECT, normalize_subject(subject))

    def require_for_config(self, operation: AclOperation, subject: str | None) -> None:
        """Raise AccessDeniedError unless the client may read or change a config or mode.

        The config and mode of the default context and of all contexts need a permission on the cluster.
        """
        if subject is None or is_default_context(subject) or split_subject(subject) == (GLOBAL_CONTEXT, ""):
            if not self._is_authorized(operation, AclResourceType.CLUSTER, CLUSTER_NAME):
                raise self._log_denial(operation, AclResourceType.CLUSTER, CLUSTER_NAME)
        else:
            self.require(operation, subject)

    def deny(self, operation: AclOperation, subject: str) -> AccessDeniedError:
        """Write a denied operation on a subject to the audit log, and return the error for the client."""
        return self._log_denial(operation, AclResourceType.SUBJECT, normalize_subject(subject))

    def build_filter(self, operation: AclOperation) -> SubjectFilter:
        """Return a predicate on normalized names of subjects, for lists. Denials are not audited."""
        if self._authorizer is None:
            return accept_all
        return lambda subject: self._is_authorized(operation, AclResourceType.SUBJECT, subject)

    def _is_authorized(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        client = self._client
        return self._authorizer is None or self._authorizer.is_authorized(
            client.principal, client.host, operation, resource_type, name
        )

    def _log_denial(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> AccessDeniedError:
        audit.log_denied_request(self._client, self._api, operation, resource_type, name)
        resource = audit.to_kafka_enum_name(resource_type)
        return AccessDeniedError(
            f"User is denied operation {audit.to_kafka_enum_name(operation)} on {resource}: {name}"
        )
