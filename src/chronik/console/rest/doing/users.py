"""Operations on users with SCRAM credentials."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.client.security.users import delete_user, list_users, set_password
from chronik.console.rest.call import Call
from chronik.console.rest.doing.shared import paged
from chronik.console.rest.shapes.common import Done, NoQuestion, Page, Searching
from chronik.console.rest.shapes.security import Credential, NewPassword, User


def list_all(context: Call, params: Searching) -> Page[User]:
    """List users with SCRAM credentials by name."""
    known = list_users(context.cluster)
    page = paged(known, params.search, params.after, params.limit)
    return Page([_to_user(name, known[name]) for name in page.items], page.next, page.total)


def put(context: Call, params: NewPassword) -> User:
    """Create a user, or change a user's password."""
    set_password(context.cluster, params.name, params.password, params.mechanisms, params.iterations)
    return _to_user(params.name, dict.fromkeys(params.mechanisms, params.iterations))


def delete(context: Call, params: NoQuestion) -> Done:
    """Delete all SCRAM credentials of a user."""
    delete_user(context.cluster, context.path["user"])
    return Done()


def _to_user(name: str, credentials: Mapping[str, int]) -> User:
    return User(name, [Credential(mechanism, count) for mechanism, count in sorted(credentials.items())])
