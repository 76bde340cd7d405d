"""Import of users, ACLs and quotas. Those that the cluster already has are not changed.

The import uses the same commands as client requests, after a check for existing objects. A user that a client alters
between the check and the command may be overwritten.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence

from chronik.admin.acls import create_acls
from chronik.admin.quotas import QuotaChangeRequest, alter_quotas
from chronik.admin.users import SALT_BYTES_MAX, SECRET_BYTES, check_user_name
from chronik.ids import format_id
from chronik.metadata.chunking import iter_chunks
from chronik.metadata.commands.security import AlterScramUser, ScramKeys
from chronik.metadata.records import Acl
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import validate_entity
from chronik.security.sasl.scram_keys import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS_BY_NUMBER


def check_import_in_progress(store: MetadataStore, import_id: bytes) -> None:
    """Raise KafkaError with RESOURCE_NOT_FOUND unless the import with this id is in progress.

    Only an import may store SCRAM keys that were not derived from a password here.
    """
    known = store.image.latest_import
    if known is None or known.id != import_id or known.is_finished:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"no import {format_id(import_id)} is in progress")


async def import_users(store: MetadataStore, users: Mapping[str, tuple[ScramKeys, ...]]) -> None:
    """Import the users that do not exist in this cluster yet, with their SCRAM credentials.

    An existing user keeps its credentials, because it may be another person.

    Raises:
        KafkaError: A name or a key is invalid.
    """
    new = {name: keys for name, keys in users.items() if name not in store.image.users.by_name}
    for name, keys in new.items():
        _check_scram_keys(name, keys)
    for some in iter_chunks(new.items()):
        secret = b"" if store.image.salt_secret else secrets.token_bytes(SECRET_BYTES)
        await asyncio.gather(*(store.propose(AlterScramUser(name, keys, (), secret)) for name, keys in some))


def _check_scram_keys(name: str, keys: Sequence[ScramKeys]) -> None:
    """Validate the SCRAM keys of an imported user.

    Keys that are read from the metadata log are not validated again.
    """
    check_user_name(name)
    for each in keys:
        scram = MECHANISMS_BY_NUMBER.get(each.mechanism)
        if (
            scram is None
            or {len(each.stored_key), len(each.server_key)} != {scram.size}
            or not 0 < len(each.salt) <= SALT_BYTES_MAX
            or not ITERATIONS_MIN <= each.iterations <= ITERATIONS_MAX
        ):
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"the SCRAM keys of user {name} are invalid")
    if not keys:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"user {name} has no SCRAM keys")


async def import_acls(store: MetadataStore, acls: Sequence[Acl]) -> None:
    """Import ACLs, and raise the KafkaError of the first ACL that is rejected."""
    _raise_first_error(await create_acls(store, acls))


async def import_quotas(store: MetadataStore, quotas: Sequence[QuotaChangeRequest]) -> None:
    """Import the quotas of entities that have no quotas in this cluster yet.

    Raise the KafkaError of the first entity that is rejected.
    """
    new = [each for each in quotas if validate_entity(each.entity) not in store.image.quotas]
    if new:
        _raise_first_error((await alter_quotas(store, new, validate_only=False)).values())


def _raise_first_error(outcomes: Iterable[KafkaError | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
