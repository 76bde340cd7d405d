from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from chronik.config import Address
from chronik.quorum.outcomes import NotLeader, OutcomeUnknown, ProposalLost, ProposalRejected
from chronik.quorum.watchdog import STALL_SECONDS_MIN, WARNING_SECONDS_MIN, EventLoopWatchdog
from chronik.raft.config import RaftConfig
from chronik.raft.roles import Role
from tests.peers.helpers import LOCALHOST, StuckAcceptor, run, until
from tests.quorum.cluster import Node, RaftCluster, running_cluster

UNREACHABLE_ADDRESS = Address(LOCALHOST, 1)


def isolate(cluster: RaftCluster, node: Node) -> None:
    for other in cluster.nodes.values():
        if other is not node:
            other.transport.set_peer(node.node_id, UNREACHABLE_ADDRESS)
            node.transport.set_peer(other.node_id, UNREACHABLE_ADDRESS)


def heal(cluster: RaftCluster) -> None:
    for node in cluster.nodes.values():
        for other in cluster.nodes.values():
            node.transport.set_peer(other.node_id, other.address)


def test_isolated_leader_loses_uncommitted_proposals_and_rejoins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            old = await cluster.leader()
            await old.driver.propose(b"before")
            isolate(cluster, old)
            lost = asyncio.create_task(old.driver.propose(b"lost", timeout=30))
            await until(lambda: old.driver.status.role is not Role.LEADER, "step-down")
            with pytest.raises(NotLeader):
                await old.driver.propose(b"refused")
            others = [node for node in cluster.nodes.values() if node is not old]
            await until(lambda: any(node.driver.status.role is Role.LEADER for node in others), "election")
            new = next(node for node in others if node.driver.status.role is Role.LEADER)
            await new.driver.propose(b"kept")
            assert not lost.done()
            heal(cluster)
            with pytest.raises(ProposalLost):
                await lost
            await cluster.wait_for_convergence()
            assert old.machine.commands == [b"before", b"kept"]

    run(scenario())


def test_unresponsive_peer_does_not_delay_commits(tmp_path: Path) -> None:
    async def scenario() -> None:
        raft = RaftConfig(append_bytes_max=64 * 1024, inflight_bytes_max=512 * 1024)
        async with running_cluster(tmp_path, raft=raft) as cluster:
            leader = await cluster.leader()
            away = leader.node_id % 3 + 1
            address = cluster.addresses[away]
            await cluster.stop(away)
            acceptors: list[StuckAcceptor] = []

            def accept() -> StuckAcceptor:
                acceptors.append(StuckAcceptor(away))
                return acceptors[-1]

            stuck = await asyncio.get_running_loop().create_server(accept, address.host, address.port)
            await until(lambda: away in leader.transport.connected_peers, "connection")
            queued = 0
            for _ in range(20):
                await asyncio.gather(*(leader.driver.propose(bytes(100_000)) for _ in range(10)))
                queued = max(queued, leader.transport.queued_bytes(away))
            assert len(leader.machine.commands) == 200  # 20 MB, acknowledged by the other two nodes
            assert queued <= raft.inflight_bytes_max + 2 * raft.append_bytes_max
            stuck.close()
            for acceptor in acceptors:
                acceptor.abort()
            node = await cluster.restart(away)
            await cluster.wait_for_convergence()
            assert len(node.machine.commands) == 200

    run(scenario())


def test_proposals_beyond_limit_are_rejected_immediately(tmp_path: Path) -> None:
    async def scenario() -> None:
        raft = RaftConfig(entry_bytes_max=1000, uncommitted_bytes_max=10_000)
        async with running_cluster(tmp_path, raft=raft) as cluster:
            leader = await cluster.leader()
            isolate(cluster, leader)
            proposals = [asyncio.create_task(leader.driver.propose(bytes(900), timeout=0.3)) for _ in range(30)]
            results = await asyncio.gather(*proposals, return_exceptions=True)
            refused = [result for result in results if isinstance(result, ProposalRejected)]
            unknown = [result for result in results if isinstance(result, OutcomeUnknown)]
            assert len(refused) + len(unknown) == 30
            assert 5 < len(unknown) <= 11
            with pytest.raises((ProposalRejected, NotLeader)):
                await leader.driver.propose(bytes(1001))
            heal(cluster)
            await cluster.propose(b"healed")
            await cluster.wait_for_convergence()

    run(scenario())


def test_event_loop_stall_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.WARNING, "chronik.raft")
        watchdog = EventLoopWatchdog()
        watchdog.start()
        watchdog.record("quick work", STALL_SECONDS_MIN / 2)
        time.sleep(2 * WARNING_SECONDS_MIN)  # noqa: ASYNC251 - blocks the loop on purpose
        await until(lambda: "event loop stalled" in caplog.text)
        assert watchdog.longest_stall_seconds > STALL_SECONDS_MIN
        assert "quick work" not in caplog.text
        watchdog.stop()

    run(scenario())


def test_short_stall_is_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(seconds: float, level: int) -> None:
        caplog.clear()
        caplog.set_level(logging.DEBUG, "chronik.raft")
        watchdog = EventLoopWatchdog()
        watchdog.record("work", seconds)
        watchdog.start()
        await until(lambda: "event loop stalled: cause=work" in caplog.text)
        watchdog.stop()
        assert [record.levelno for record in caplog.records if "cause=work" in record.message] == [level]

    run(scenario(WARNING_SECONDS_MIN - 0.001, logging.DEBUG))
    run(scenario(WARNING_SECONDS_MIN, logging.WARNING))


def test_long_operation_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        watchdog = EventLoopWatchdog()
        watchdog.start()
        watchdog.record("long work", 5.0)
        await until(lambda: "event loop stalled: cause=long work duration_ms=5000" in caplog.text)
        watchdog.stop()

    run(scenario())
