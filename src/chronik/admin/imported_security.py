"""Users, ACLs and quotas of another store: those that the cluster has already stay as they are.

They come by the commands that clients' requests become, after a look at what there is. Who alters the same user in the
milliseconds between them may find that the imported one has won.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence

from chronik.admin.acls import create_acls
from chronik.admin.quotas import WantedQuotas, alter_quotas
from chronik.admin.users import SALT_BYTES_MAX, SECRET_BYTES, check_user_name
from chronik.ids import format_id
from chronik.metadata.commands.users import AlterScramUser, ScramKeys
from chronik.metadata.records import Acl
from chronik.metadata.slices import in_pieces
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import checked_entity
from chronik.security.sasl.scram_keys import BY_NUMBER, ITERATIONS_MAX, ITERATIONS_MIN


def refuse_without_import(store: MetadataStore, import_id: bytes) -> None:
    """Raises KafkaError unless it is under way: only then may anybody bring keys that nobody has made of a password."""
    known = store.image.imported
    if known is None or known.id != import_id or known.is_finished:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no import {format_id(import_id)} under way")


async def import_users(store: MetadataStore, users: Mapping[str, tuple[ScramKeys, ...]]) -> None:
    """A user who exists gets no keys, not even of another mechanism: it may be another person. Raises KafkaError."""
    new = {name: keys for name, keys in users.items() if name not in store.image.users.by_name}
    for name, keys in new.items():
        _check(name, keys)
    for some in in_pieces(new.items()):
        secret = b"" if store.image.salt_secret else secrets.token_bytes(SECRET_BYTES)
        await asyncio.gather(*(store.propose(AlterScramUser(name, keys, (), secret)) for name, keys in some))


def _check(name: str, keys: Sequence[ScramKeys]) -> None:
    """What is in the log is not looked at again: a node could not read what does not hold here."""
    check_user_name(name)
    for each in keys:
        scram = BY_NUMBER.get(each.mechanism)
        if (
            scram is None
            or {len(each.stored_key), len(each.server_key)} != {scram.size}
            or not 0 < len(each.salt) <= SALT_BYTES_MAX
            or not ITERATIONS_MIN <= each.iterations <= ITERATIONS_MAX
        ):
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"the keys of {name} are none")
    if not keys:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{name} has no keys")


async def import_acls(store: MetadataStore, acls: Sequence[Acl]) -> None:
    """Raises the KafkaError of the first that cannot be."""
    _raise_first(await create_acls(store, acls))


async def import_quotas(store: MetadataStore, quotas: Sequence[WantedQuotas]) -> None:
    """Who has quotas keeps them, and gets no others. Raises the KafkaError of the first that cannot be."""
    new = [each for each in quotas if checked_entity(each.entity) not in store.image.quotas]
    if new:
        _raise_first((await alter_quotas(store, new, validate_only=False)).values())


def _raise_first(outcomes: Iterable[KafkaError | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
