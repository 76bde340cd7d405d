"""The log line of a registration names the term and index of the committed entry, not the current term."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import pytest

from chronik.clock import SystemClock
from chronik.controller.controller import Controller
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.raft_store import RaftStore
from chronik.node.registration import BrokerRegistration
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import CommittedPosition
from tests.peers.helpers import run, until
from tests.quorum.cluster import running_cluster


class LateAnswerStore(RaftStore):
    """A store that returns the result of a command after leadership has moved to another node, in a later term."""

    def __init__(self, driver: RaftDriver, successor: int) -> None:
        super().__init__(driver.node_id)
        self._driver = driver
        self._successor = successor
        self.committed: CommittedPosition | None = None

    async def propose(self, *_: Any, **__: Any) -> ApplyResult:
        self.committed = await self._driver.propose(b"a registration")
        await self._driver.transfer_leadership(self._successor)
        await until(lambda: self._driver.leader == self._successor, "the transfer")
        return ApplyResult(value=7, index=self.committed.index)


def test_registration_logs_term_of_its_entry_after_leader_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            successor = next(node_id for node_id in cluster.nodes if node_id != leader.node_id)
            store = LateAnswerStore(leader.driver, successor)
            command = RegisterBroker(leader.node_id, "localhost", 9092, None, bytes(16), bytes(16))
            registration = BrokerRegistration(
                store, leader.driver, cast(Controller, None), SystemClock(), command, session_seconds=3.0
            )
            await registration._register()
            assert store.committed is not None
            assert leader.driver.status.term > store.committed.term
            expected = f"epoch=7 term={store.committed.term} index={store.committed.index}"
            assert f"registered broker {leader.node_id}: {expected}" in caplog.text

    run(scenario())
