"""Handler of the command that alters SCRAM credentials."""

from __future__ import annotations

from typing import Final

from chronik.metadata.commands.users import AlterScramUser
from chronik.metadata.errors import CommandRejectedError
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.records import ApplyResult, ScramCredential
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

USERS_MAX: Final = 100_000
"""The maximum number of users: each one takes memory and is part of every snapshot."""

USER_NAME_CHARACTERS_MAX: Final = 1024
"""The maximum length of a user name, which appears in log lines, ACLs and snapshots.

Names from certificates have a few hundred characters.
"""


def alter_scram_user(writer: ImageWriter, command: AlterScramUser, index: int) -> ApplyResult:
    """Update a user's SCRAM credentials."""
    users = writer.image.users
    if not command.name:
        raise CommandRejectedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(command.name) > USER_NAME_CHARACTERS_MAX:
        message = f"a user's name of more than {USER_NAME_CHARACTERS_MAX} characters"
        raise CommandRejectedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if command.is_first and users.by_name:
        raise CommandRejectedError(ErrorCode.DUPLICATE_RESOURCE, "there are users already")
    if command.put and command.name not in users.by_name and len(users.by_name) >= USERS_MAX:
        raise CommandRejectedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"there are {USERS_MAX} users already")
    named = [*(keys.mechanism for keys in command.put), *command.remove]
    if len(set(named)) != len(named):
        raise CommandRejectedError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    if not set(command.remove) <= users.credentials(command.name).keys():
        raise CommandRejectedError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    if command.secret and not writer.image.salt_secret:
        writer.set_salt_secret(command.secret)
    for mechanism in command.remove:
        writer.remove_credential(command.name, mechanism)
    for keys in command.put:
        writer.put_credential(
            ScramCredential(command.name, keys.mechanism, keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        )
    return ApplyResult()


HANDLERS: CommandHandlers = {AlterScramUser: alter_scram_user}
