"""Creation of a cluster's first SCRAM user (`chronik start --add-scram`), who can then create others."""

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
    """Add the user unless there are users already, after waiting until the cluster is bootstrapped."""
    await _wait_for_bootstrap(store)
    while not store.image.users.by_name:
        try:
            await store.propose(command)
        except KafkaError as error:
            if error.code is ErrorCode.DUPLICATE_RESOURCE:
                break
            if not error.code.retriable:
                logger.error("first user %r not added: %s", command.name, error)
                return
            await asyncio.sleep(RETRY_SECONDS)
            continue
        logger.info("first user %r added", command.name)
        return
    if command.name in store.image.users.by_name:
        logger.info("first user %r exists already; keeping its password", command.name)
    else:
        logger.info("first user %r not added: the cluster has other users", command.name)


async def _wait_for_bootstrap(store: MetadataStore) -> None:
    bootstrapped = asyncio.Event()

    def check(_: Delta) -> None:
        if store.image.cluster_id:
            bootstrapped.set()

    store.subscribe(check)
    check(Delta(0))
    await bootstrapped.wait()
