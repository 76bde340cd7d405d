"""Handler of the command that alters SCRAM credentials."""

from __future__ import annotations

from typing import Final

from chronik.metadata.commands.users import AlterScramUser
from chronik.metadata.handlers import Handlers
from chronik.metadata.records import Result, ScramCredential
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

USERS_MAX: Final = 100_000
"""The maximum number of users: each one takes memory and is part of every snapshot."""

USER_NAME_CHARACTERS_MAX: Final = 1024
"""The maximum length of a user name, which appears in log lines, ACLs and snapshots.

Names from certificates have a few hundred characters.
"""


def alter_scram_user(writer: ImageWriter, command: AlterScramUser, index: int) -> Result:
    """Update a user's SCRAM credentials."""
    users = writer.image.users
    if not command.name:
        raise Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(command.name) > USER_NAME_CHARACTERS_MAX:
        message = f"a user's name of more than {USER_NAME_CHARACTERS_MAX} characters"
        raise Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if command.is_first and users.by_name:
        raise Rejected(ErrorCode.DUPLICATE_RESOURCE, "there are users already")
    if command.put and command.name not in users.by_name and len(users.by_name) >= USERS_MAX:
        raise Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"there are {USERS_MAX} users already")
    named = [*(keys.mechanism for keys in command.put), *command.remove]
    if len(set(named)) != len(named):
        raise Rejected(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    if not set(command.remove) <= users.of(command.name).keys():
        raise Rejected(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    if command.secret and not writer.image.salt_secret:
        writer.set_salt_secret(command.secret)
    for mechanism in command.remove:
        writer.remove_credential(command.name, mechanism)
    for keys in command.put:
        writer.put_credential(
            ScramCredential(command.name, keys.mechanism, keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        )
    return Result()


HANDLERS: Handlers = {AlterScramUser: alter_scram_user}
