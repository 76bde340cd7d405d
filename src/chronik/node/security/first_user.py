"""The first user of a cluster, whom `chronik start --add-scram` names: somebody must be able to let others in."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.metadata.commands.users import AlterScramUser
from chronik.metadata.delta import Delta
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.node")

RETRY_SECONDS: Final = 0.5


async def add_first_user(store: MetadataStore, command: AlterScramUser) -> None:
    """Returns when the user is added, or there are users already, whoever has added them. A cluster that is being
    founded is waited for."""
    await _founded(store)
    while not store.image.users.by_name:
        try:
            await store.propose(command)
        except KafkaError as error:
            if error.code is ErrorCode.DUPLICATE_RESOURCE:
                break
            if not error.code.retriable:
                logger.error("the first user, %r, cannot be added: %s", command.name, error)
                return
            await asyncio.sleep(RETRY_SECONDS)
            continue
        logger.info("added the first user, %r", command.name)
        return
    if command.name in store.image.users.by_name:
        logger.info("user %r is there already, and keeps the password it has", command.name)
    else:
        logger.info("there are users already: %r is not added by this start", command.name)


async def _founded(store: MetadataStore) -> None:
    founded = asyncio.Event()

    def look(_: Delta) -> None:
        if store.image.cluster_id:
            founded.set()

    store.subscribe(look)
    look(Delta(0))
    await founded.wait()
