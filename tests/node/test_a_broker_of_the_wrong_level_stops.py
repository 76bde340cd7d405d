"""A broker that the cluster does not register for its version stops, and says why, rather than ask for ever."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.clock import SystemClock
from chronik.errors import ConfigError
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.image import Image
from chronik.metadata.stores.raft_store import RaftStore
from chronik.node.registration import Registration
from chronik.protocol.errors import ErrorCode, KafkaError

SENTENCE = "broker 3 supports chronik.version 1 to 1, and the cluster is at 2: start it with a newer version of Chronik"


def test_it_is_told_once_and_stops() -> None:
    asked = []

    async def propose(command: RegisterBroker) -> Any:
        asked.append(command)
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, SENTENCE)

    async def story() -> None:
        store = cast(RaftStore, SimpleNamespace(propose=propose, incarnation=bytes(16), image=Image()))
        command = RegisterBroker(3, "localhost", 9092, None, bytes(16), bytes(16))
        unused = cast(Any, None)
        await Registration(store, unused, unused, SystemClock(), command, 3.0).run()

    with pytest.raises(ConfigError) as stopped:
        asyncio.run(asyncio.wait_for(story(), 60))
    assert str(stopped.value) == SENTENCE
    assert [command.broker_id for command in asked] == [3]
