"""A broker with an unsupported feature level stops with an error instead of retrying its registration."""

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
from chronik.node.registration import BrokerRegistration
from chronik.protocol.errors import ErrorCode, KafkaError

MESSAGE = "broker 3 supports chronik.version 1 to 1, and the cluster is at 2: start it with a newer version of Chronik"


def test_registration_with_unsupported_level_raises_config_error() -> None:
    proposals = []

    async def propose(command: RegisterBroker) -> Any:
        proposals.append(command)
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, MESSAGE)

    async def scenario() -> None:
        store = cast(RaftStore, SimpleNamespace(propose=propose, incarnation=bytes(16), image=Image()))
        command = RegisterBroker(3, "localhost", 9092, None, bytes(16), bytes(16))
        unused = cast(Any, None)
        await BrokerRegistration(store, unused, unused, SystemClock(), command, 3.0).run()

    with pytest.raises(ConfigError) as stopped:
        asyncio.run(asyncio.wait_for(scenario(), 60))
    assert str(stopped.value) == MESSAGE
    assert [command.broker_id for command in proposals] == [3]
