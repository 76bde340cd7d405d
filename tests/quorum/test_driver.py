from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from chronik.config import Address
from chronik.errors import DamagedDataError, StorageError
from chronik.files import DiskFileSystem
from chronik.quorum.forwarder import PENDING_FORWARDS_MAX
from chronik.quorum.outcomes import (
    DriverStopped,
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    ProposalRejected,
    ReadTimedOut,
)
from chronik.quorum.watchdog import STALL_SECONDS_MIN, WARNING_SECONDS_MIN, EventLoopWatchdog
from chronik.raft.config import RaftConfig
from chronik.raft.entries import RaftEntry
from chronik.raft.events import RejectionReason
from chronik.raft.membership import AddLearner, PromoteLearner, RemoveMember
from chronik.raft.roles import Role
from tests.files.simulated_files import SimulatedFileSystem
from tests.peers.helpers import LOCALHOST, StuckAcceptor, run, until
from tests.quorum.cluster import Node, RaftCluster, running_cluster

UNREACHABLE_ADDRESS = Address(LOCALHOST, 1)


def test_three_nodes_elect_leader_and_replicate_commands(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            results = await asyncio.gather(*(leader.driver.propose(b"%d" % number) for number in range(200)))
            assert [result.index for result in results] == list(range(results[0].index, results[0].index + 200))
            await cluster.wait_for_convergence()
            for node in cluster.nodes.values():
                assert node.machine.commands == [b"%d" % number for number in range(200)]
                assert node.driver.status.leader == leader.node_id
            assert leader.driver.status.pending_requests == 0
            await until(lambda: set(leader.driver.status.match_indexes.values()) == {leader.driver.status.last_index})

    run(scenario())


def test_follower_rejects_proposal_with_leader_hint(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            follower = next(node for node in cluster.nodes.values() if node is not leader)
            with pytest.raises(NotLeader) as refused:
                await follower.driver.propose(b"x")
            assert refused.value.leader == leader.node_id

    run(scenario())


def test_forwarded_proposal_returns_after_local_apply(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            for node in cluster.nodes.values():
                committed = await node.forwarder.propose(b"from %d" % node.node_id)
                assert node.machine.index >= committed.index
                assert b"from %d" % node.node_id in node.machine.commands

    run(scenario())


def test_forwarded_proposals_beyond_limit_wait_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            follower = next(node for node in cluster.nodes.values() if node is not leader)
            await until(lambda: follower.driver.leader == leader.node_id)
            count = 2 * PENDING_FORWARDS_MAX + 1
            proposals = [follower.forwarder.propose(b"%d" % number) for number in range(count)]
            indexes = [committed.index for committed in await asyncio.gather(*proposals)]
            assert indexes == sorted(indexes)  # the order was kept
            assert follower.machine.commands[-count:] == [b"%d" % number for number in range(count)]

    run(scenario())


def test_forward_timeout_before_sending_is_a_definite_rejection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            follower = next(node for node in cluster.nodes.values() if node is not leader)
            await until(lambda: follower.driver.leader == leader.node_id)
            turns = follower.forwarder._slots[leader.node_id]
            for _ in range(PENDING_FORWARDS_MAX):
                await turns.acquire()
            with pytest.raises(ProposalRejected):
                await follower.forwarder.propose(b"too many", 0.05)
            turns.release()
            await follower.forwarder.propose(b"one place is free")
            assert b"too many" not in follower.machine.commands

    run(scenario())


def test_committed_commands_survive_restart_of_all_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            for number in range(50):
                await cluster.propose(b"%d" % number)
            term = (await cluster.leader()).driver.status.term
            await cluster.stop()
            for node_id in (3, 1, 2):
                await cluster.restart(node_id)
            leader = await cluster.leader()
            assert leader.driver.status.term > term
            await cluster.propose(b"after")
            await cluster.wait_for_convergence()
            assert leader.machine.commands == [*(b"%d" % number for number in range(50)), b"after"]

    run(scenario())


def test_leader_failure_loses_no_acknowledged_command(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            for number in range(3):
                await cluster.propose(b"before %d" % number)
                leader = await cluster.leader()
                term = leader.driver.status.term
                await cluster.stop(leader.node_id)
                await cluster.propose(b"after %d" % number)
                assert (await cluster.leader()).driver.status.term > term
                await cluster.restart(leader.node_id)
            await cluster.wait_for_convergence()
            commands = next(iter(cluster.nodes.values())).machine.commands
            wanted = [word % number for number in range(3) for word in (b"before %d", b"after %d")]
            assert list(dict.fromkeys(commands)) == wanted

    run(scenario())


def test_node_starts_without_quorum_and_rejects_requests(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = RaftCluster(tmp_path)
        node = cluster.make(1)
        try:
            await node.driver.start()
            with pytest.raises(NotLeader):
                await node.driver.propose(b"x")
            with pytest.raises(NotLeader):
                await node.driver.read_index()
            assert node.driver.status.role is not Role.LEADER
        finally:
            await node.driver.stop()
        with pytest.raises(DriverStopped):
            await node.driver.propose(b"x")

    run(scenario())


def test_proposal_without_quorum_has_unknown_outcome(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            await cluster.stop(*(node_id for node_id in cluster.members if node_id != leader.node_id))
            proposal = asyncio.create_task(leader.driver.propose(b"alone", timeout=0.5))
            read = asyncio.create_task(leader.driver.read_index(timeout=0.5))
            with pytest.raises(OutcomeUnknown):
                await proposal
            with pytest.raises((NotLeader, ReadTimedOut)):
                await read
            await until(lambda: leader.driver.status.role is not Role.LEADER, "step-down")
            assert b"alone" not in leader.machine.commands
            assert leader.driver.status.pending_requests == 0

    run(scenario())


def test_read_on_any_node_is_linearizable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            for number in range(20):
                committed = await leader.driver.propose(b"%d" % number)
                for node in cluster.nodes.values():
                    index = await node.driver.read_index()
                    assert index >= committed.index
                    await node.driver.wait_applied(index)
                    assert node.machine.commands[number] == b"%d" % number

    run(scenario())


def test_leadership_is_transferred(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            target = leader.node_id % 3 + 1
            await leader.driver.transfer_leadership(target)
            assert (await cluster.leader()).node_id == target
            with pytest.raises(NotLeader):
                await leader.driver.transfer_leadership(target)
            with pytest.raises(ProposalRejected):
                await cluster.nodes[target].driver.transfer_leadership(target)

    run(scenario())


def test_lagging_node_catches_up_by_snapshot(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path, snapshot_entries=100, bytes_kept=0) as cluster:
            leader = await cluster.leader()
            away = leader.node_id % 3 + 1
            await cluster.propose(b"seen by all")
            await cluster.stop(away)
            for begin in range(0, 1000, 50):
                await asyncio.gather(*(leader.driver.propose(b"%d" % (begin + n)) for n in range(50)))
            await until(lambda: leader.driver.status.first_index > 500, "compaction")
            node = await cluster.restart(away)
            await cluster.wait_for_convergence()
            assert node.machine.installed
            assert len(node.machine.commands) == 1001
            # A restart from a received snapshot works, too.
            await cluster.stop(away)
            again = await cluster.restart(away)
            assert again.machine.installed
            await cluster.wait_for_convergence()

    run(scenario())


def test_snapshot_in_many_chunks_is_transferred(tmp_path: Path) -> None:
    async def scenario() -> None:
        raft = RaftConfig(snapshot_chunk_bytes=700)
        async with running_cluster(tmp_path, snapshot_entries=200, bytes_kept=0, raft=raft) as cluster:
            leader = await cluster.leader()
            away = leader.node_id % 3 + 1
            await cluster.stop(away)
            await asyncio.gather(*(leader.driver.propose(b"%d" % n * 20) for n in range(250)))
            await until(lambda: leader.driver.status.first_index > 100, "compaction")
            node = await cluster.restart(away)
            await cluster.wait_for_convergence()
            assert len(node.machine.commands) == 250

    run(scenario())


def test_new_node_becomes_learner_then_voter(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            await cluster.propose(b"before")
            cluster_members, cluster.members = cluster.members, []
            newcomer = cluster.make(4)
            await newcomer.bind()
            cluster.addresses[4] = newcomer.address
            for node in cluster.nodes.values():
                node.transport.set_peer(4, newcomer.address)
            await cluster._start_node(newcomer)
            cluster.members = cluster_members
            await leader.driver.change_membership(AddLearner(4, bytes([4]) * 16))
            await until(lambda: newcomer.machine.commands == [b"before"], "learning")
            await leader.driver.change_membership(PromoteLearner(4))
            assert 4 in leader.driver.status.membership.voters
            with pytest.raises(ProposalRejected) as refused:
                await leader.driver.change_membership(PromoteLearner(4))
            assert refused.value.reason is RejectionReason.INVALID_CHANGE
            await leader.driver.change_membership(RemoveMember(4))
            assert [member.node_id for member in leader.driver.status.membership.members] == [1, 2, 3]

    run(scenario())


def test_single_node_becomes_leader_immediately(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(1, DiskFileSystem(tmp_path), [1], tick_seconds=3600)  # the election must not wait for a tick
        try:
            await node.driver.start()
            await until(lambda: node.driver.status.role is Role.LEADER)
            assert (await node.driver.propose(b"x")).term == 1
            await node.driver.read_index()
        finally:
            await node.driver.stop()

    run(scenario())


def test_failed_sync_stops_node_without_acknowledgement(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = SimulatedFileSystem()
        node = Node(1, files, [1])
        try:
            await node.driver.start()
            await until(lambda: node.driver.status.role is Role.LEADER)
            await node.driver.propose(b"safe")
            files.fail_at(files.events + 1, errno.EIO)  # the write succeeds, the sync fails
            with pytest.raises(StorageError):
                await node.driver.propose(b"lost")
            assert len(node.fatal) == 1
            assert isinstance(node.fatal[0], StorageError)
            with pytest.raises(StorageError):
                await node.driver.propose(b"refused")
            assert node.machine.commands == [b"safe"]
        finally:
            await node.driver.stop()

    run(scenario())


def test_start_fails_on_damaged_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(1, DiskFileSystem(tmp_path), [1])
        await node.driver.start()
        await until(lambda: node.driver.status.role is Role.LEADER)
        await node.driver.propose(b"x" * 100)
        await node.driver.propose(b"y" * 100)
        await node.driver.stop()
        [path] = (tmp_path / "__raft").glob("*.wal")
        data = bytearray(path.read_bytes())
        data[data.index(b"xxxx")] ^= 1
        path.write_bytes(data)
        again = Node(1, DiskFileSystem(tmp_path), [1])
        await again.bind()
        with pytest.raises(DamagedDataError):
            await again.driver.start()
        await again.driver.stop()
        third = Node(1, DiskFileSystem(tmp_path), [1], address=again.address)
        await third.bind()  # the failed start has released the port
        await third.transport.stop()

    run(scenario())


def test_state_machine_exception_stops_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = Node(1, DiskFileSystem(tmp_path), [1])
        try:
            await node.driver.start()
            await until(lambda: node.driver.status.role is Role.LEADER)
            node.machine.index = 10**6  # the next entry leaves a gap
            with pytest.raises(StorageError):
                await node.driver.propose(b"x")
            assert isinstance(node.fatal[0], AssertionError)
        finally:
            await node.driver.stop()

    run(scenario())


def test_wiped_node_does_not_vote_and_returns_as_learner(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            await cluster.propose(b"before")
            wiped, other = (node_id for node_id in cluster.members if node_id != leader.node_id)
            await cluster.stop(wiped)
            shutil.rmtree(tmp_path / str(wiped))
            new_directory = bytes([wiped + 100]) * 16
            node = await cluster.restart(wiped, directory_id=new_directory)
            await until(lambda: wiped in leader.transport.connected_peers, "connection")
            await cluster.stop(other)  # now the wiped node would be needed for a majority
            with pytest.raises((OutcomeUnknown, NotLeader)):
                await leader.driver.propose(b"must not be committed yet", timeout=1.0)
            await until(lambda: leader.driver.status.role is not Role.LEADER, "step-down")
            assert Role.LEADER not in node.roles
            assert node.machine.commands == []
            await cluster.restart(other)
            leader = await cluster.leader(excluding=wiped)  # messages to its old directory are ignored
            assert leader.node_id != wiped
            await leader.driver.propose(b"without it")
            assert node.machine.commands == []
            await leader.driver.change_membership(AddLearner(wiped, new_directory))
            await cluster.wait_for_convergence()
            await leader.driver.change_membership(PromoteLearner(wiped))
            assert leader.driver.status.membership.voters == (1, 2, 3)
            assert node.machine.commands[0] == b"before"

    run(scenario())


def test_slow_commands_trigger_snapshot_by_apply_time(tmp_path: Path) -> None:
    """A snapshot is taken when applying has taken long, even for few entries."""

    async def scenario() -> None:
        node = Node(1, DiskFileSystem(tmp_path), [1], snapshot_seconds=1.0)
        apply = node.machine.apply

        def apply_slowly(entries: Sequence[RaftEntry]) -> None:
            time.sleep(0.15 * sum(entry.data == b"slow" for entry in entries))
            apply(entries)

        node.machine.apply = apply_slowly  # type: ignore[method-assign]
        await node.driver.start()
        try:
            await until(lambda: node.driver.status.role is Role.LEADER)
            for _ in range(100):
                await node.driver.propose(b"quick")
            assert node.driver.status.snapshot_index == 0
            for _ in range(7):
                await node.driver.propose(b"slow")
            await until(lambda: node.driver.status.snapshot_index > 100, "snapshot")
        finally:
            await node.driver.stop()  # open connections would prevent closing the loop
        again = Node(1, DiskFileSystem(tmp_path), [1])
        await again.driver.start()
        try:
            await until(lambda: len(again.machine.commands) == 107)
            assert again.machine.installed
        finally:
            await again.driver.stop()

    run(scenario())


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
                queued = max(queued, leader.transport.get_queued_bytes(away))
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
