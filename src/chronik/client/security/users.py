"""Users with passwords: who there are, and how one is given another password. Passwords are salted here, and stay."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from chronik.client.cluster import Cluster, raise_for
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from chronik.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUser,
)
from chronik.security.sasl.scram_keys import BY_NAME, BY_NUMBER, new_salt, salted

Credentials = dict[str, int]
"""Iterations by mechanism."""


def list_users(cluster: Cluster, names: Sequence[str] | None = None) -> dict[str, Credentials]:
    """Returns all users, or those of these names that exist."""
    asked = None if names is None else [ScramUser(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=asked)

    def ask() -> dict[str, Credentials]:
        response = cluster.any_broker().request(request, DescribeUserScramCredentialsResponse)
        raise_for(response.error_code, "users", response.error_message)
        found = {}
        for user in response.results:
            if user.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise_for(user.error_code, f"user {user.user!r}", user.error_message)
            known = (each for each in user.credential_infos if each.mechanism in BY_NUMBER)
            found[user.user] = {BY_NUMBER[each.mechanism].name: each.iterations for each in known}
        return found

    return dict(sorted(cluster.retrying(ask).items()))


def set_password(cluster: Cluster, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Makes the user, if need be. Raises KafkaError."""
    put = []
    for mechanism in mechanisms:
        scram, salt = BY_NAME[mechanism], new_salt(secrets.choice)
        put.append(
            ScramCredentialUpsertion(
                name=name,
                mechanism=scram.number,
                iterations=iterations,
                salt=salt,
                salted_password=salted(password.encode(), salt, iterations, scram.digest),
            )
        )
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=put), name)


def delete_user(cluster: Cluster, name: str) -> None:
    """Takes away all passwords of the user. Raises KafkaError."""
    known = list_users(cluster, [name]).get(name)
    if not known:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
    delete_passwords(cluster, name, list(known))


def delete_passwords(cluster: Cluster, name: str, mechanisms: Sequence[str]) -> None:
    """Takes away those of the user that are for these mechanisms. Raises KafkaError."""
    gone = [ScramCredentialDeletion(name=name, mechanism=BY_NAME[mechanism].number) for mechanism in mechanisms]
    _alter(cluster, AlterUserScramCredentialsRequest(deletions=gone), name)


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest, name: str) -> None:
    def ask() -> None:
        response = cluster.any_broker().request(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            raise_for(result.error_code, f"user {name!r}", result.error_message)

    cluster.retrying(ask)
