"""Operations on users with SCRAM credentials."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.client.security import delete_user, list_users, set_password
from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.common import Done, NoQuestion, Page, Searching
from chronik.console.rest.models.security import Credential, NewPassword, User
from chronik.console.rest.operations.shared import paginate_names


def list_all(context: OperationContext, params: Searching) -> Page[User]:
    """List users with SCRAM credentials by name."""
    known = list_users(context.cluster)
    page = paginate_names(known, params.search, params.after, params.limit)
    return Page([_to_user(name, known[name]) for name in page.items], page.next, page.total)


def put(context: OperationContext, params: NewPassword) -> User:
    """Create a user, or change a user's password."""
    set_password(context.cluster, params.name, params.password, params.mechanisms, params.iterations)
    return _to_user(params.name, dict.fromkeys(params.mechanisms, params.iterations))


def delete(context: OperationContext, params: NoQuestion) -> Done:
    """Delete all SCRAM credentials of a user."""
    delete_user(context.cluster, context.path_parameters["user"])
    return Done()


def _to_user(name: str, credentials: Mapping[str, int]) -> User:
    return User(name, [Credential(mechanism, count) for mechanism, count in sorted(credentials.items())])
