"""SCRAM users: list users, set passwords and delete them. Passwords are salted by the client and never sent."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from chronik.client.cluster import ClusterClient, raise_for_code
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
from chronik.security.sasl.scram_keys import MECHANISMS_BY_NAME, MECHANISMS_BY_NUMBER, new_salt, salt_password

IterationsByMechanism = dict[str, int]
"""Iterations by SCRAM mechanism."""


def list_users(cluster: ClusterClient, names: Sequence[str] | None = None) -> dict[str, IterationsByMechanism]:
    """Return the SCRAM mechanisms of all users, or of those named users that exist, sorted by user."""
    requested = None if names is None else [ScramUser(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=requested)

    def send() -> dict[str, IterationsByMechanism]:
        response = cluster.any_broker().request(request, DescribeUserScramCredentialsResponse)
        raise_for_code(response.error_code, "users", response.error_message)
        found = {}
        for user in response.results:
            if user.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise_for_code(user.error_code, f"user {user.user!r}", user.error_message)
            known = (each for each in user.credential_infos if each.mechanism in MECHANISMS_BY_NUMBER)
            found[user.user] = {MECHANISMS_BY_NUMBER[each.mechanism].name: each.iterations for each in known}
        return found

    return dict(sorted(cluster.retry(send).items()))


def set_password(cluster: ClusterClient, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Set the user's password for the given mechanisms; create the user if necessary. Raises KafkaError."""
    upsertions_to_send = []
    for mechanism in mechanisms:
        scram, salt = MECHANISMS_BY_NAME[mechanism], new_salt(secrets.choice)
        upsertions_to_send.append(
            ScramCredentialUpsertion(
                name=name,
                mechanism=scram.number,
                iterations=iterations,
                salt=salt,
                salted_password=salt_password(password.encode(), salt, iterations, scram.digest),
            )
        )
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=upsertions_to_send), name)


def delete_user(cluster: ClusterClient, name: str) -> None:
    """Delete the user by removing all its SCRAM credentials. Raises KafkaError."""
    known = list_users(cluster, [name]).get(name)
    if not known:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} does not exist")
    delete_credentials(cluster, name, list(known))


def delete_credentials(cluster: ClusterClient, name: str, mechanisms: Sequence[str]) -> None:
    """Remove the user's SCRAM credentials of the given mechanisms. Raises KafkaError."""
    deletions_to_send = [
        ScramCredentialDeletion(name=name, mechanism=MECHANISMS_BY_NAME[mechanism].number) for mechanism in mechanisms
    ]
    _alter(cluster, AlterUserScramCredentialsRequest(deletions=deletions_to_send), name)


def _alter(cluster: ClusterClient, request: AlterUserScramCredentialsRequest, name: str) -> None:
    def send() -> None:
        response = cluster.any_broker().request(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            raise_for_code(result.error_code, f"user {name!r}", result.error_message)

    cluster.retry(send)
