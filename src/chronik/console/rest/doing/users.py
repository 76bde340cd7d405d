"""Users with passwords."""

from __future__ import annotations

from collections.abc import Mapping

from chronik.client.security.users import delete_user, list_users, set_password
from chronik.console.rest.call import Call
from chronik.console.rest.doing.shared import paged
from chronik.console.rest.shapes.common import Done, NoQuestion, Page, Searching
from chronik.console.rest.shapes.security import Credential, NewPassword, User


def list_all(call: Call, asked: Searching) -> Page[User]:
    known = list_users(call.cluster)
    page = paged(known, asked.search, asked.after, asked.limit)
    return Page([_user(name, known[name]) for name in page.items], page.next, page.total)


def put(call: Call, asked: NewPassword) -> User:
    set_password(call.cluster, asked.name, asked.password, asked.mechanisms, asked.iterations)
    return _user(asked.name, dict.fromkeys(asked.mechanisms, asked.iterations))


def delete(call: Call, asked: NoQuestion) -> Done:
    delete_user(call.cluster, call.path["user"])
    return Done()


def _user(name: str, credentials: Mapping[str, int]) -> User:
    return User(name, [Credential(mechanism, count) for mechanism, count in sorted(credentials.items())])
