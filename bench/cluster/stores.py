"""The metadata store of a node without the node: a Raft store and the commands that load it.

As a program, it is one of three stores, in its own process: it executes JSON commands from stdin and prints JSON
results to stdout.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from chronik.bench.pipelined import run_with_uvloop
from chronik.config import Address
from chronik.files import DiskFileSystem
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.groups import CommitOffset, CommitOffsetBatch, OffsetToCommit
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.stores.raft_store import RaftStore
from chronik.node.run import THREAD_SWITCH_SECONDS
from chronik.peers.handshake import derive_identity
from chronik.peers.transport import PeerTransport
from chronik.quorum.driver import RaftDriver
from chronik.quorum.settings import DriverSettings
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, RaftMember
from chronik.testing.ports import HOST

SECRET: Final = "a secret that guards nothing but a measurement"
PARTITIONS: Final = 1000
TOPIC: Final = "a-topic-of-20-letter"
TIME_MS: Final = 1_700_000_000_000


def _fail(error: BaseException) -> NoReturn:
    raise error


@asynccontextmanager
async def open_store(
    directory: Path, node_id: int, raft_ports: Mapping[int, int], snapshot_entries: int = 100_000
) -> AsyncIterator[tuple[RaftStore, RaftDriver]]:
    """Open the store of one of the nodes with the given ports. It has no leader yet, unless it is alone."""
    addresses = {peer: Address(HOST, port) for peer, port in raft_ports.items()}
    store = RaftStore(node_id)
    identity = derive_identity("bench", node_id, SECRET, [HOST])
    transport = PeerTransport(identity, addresses[node_id], addresses, _fail)
    driver = RaftDriver(
        DriverSettings(
            node_id=node_id,
            directory_id=node_id.to_bytes(16, "big"),
            bootstrap=Membership(
                tuple(RaftMember(peer, UNBOUND_DIRECTORY, is_voter=True) for peer in sorted(addresses))
            ),
            snapshot_entries=snapshot_entries,
            snapshot_bytes=1 << 40,  # so that only the entries trigger snapshots
        ),
        DiskFileSystem(directory),
        store.machine,
        transport,
        on_fatal=_fail,
        on_status=lambda _: store.notify_leader_change(),
    )
    store.attach(driver)
    try:
        await transport.bind()
        await store.start()
        yield store, driver
    finally:
        await store.close()


async def create_broker_and_topic(store: RaftStore) -> None:
    """Register a broker and create a topic whose offsets can be committed."""
    await store.propose(RegisterBroker(1, HOST, 9092, None, store.incarnation, bytes(15) + b"1"))
    await store.propose(build_create_topic(TOPIC, 1, PARTITIONS))


def build_create_topic(name: str, number: int, partitions: int = 1) -> CreateTopic:
    assignment = PartitionAssignment((1,), (1,), 1)
    return CreateTopic(number.to_bytes(16, "big"), name, (assignment,) * partitions, {}, TIME_MS)


def build_commit(group: str, first: int, count: int, offset: int) -> CommitOffset:
    partitions = range(first, first + count)
    return CommitOffset(group, tuple(OffsetToCommit(TOPIC, each, offset, 0, "") for each in partitions), TIME_MS)


async def measure_commit_rate(store: RaftStore, in_flight: int, seconds: float, batch: int) -> float:
    """Return the commits per second of `in_flight` concurrent callers; each command contains `batch` commits."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    committed = 0

    async def commit_sequentially(caller: int) -> None:
        nonlocal committed
        while loop.time() < started + seconds:
            commits = [build_commit(f"group-{caller % 100}", each % PARTITIONS, 1, committed) for each in range(batch)]
            await store.propose(commits[0] if batch == 1 else CommitOffsetBatch(tuple(commits)))
            committed += batch

    async with asyncio.TaskGroup() as callers:
        for caller in range(in_flight):
            callers.create_task(commit_sequentially(caller))
    return committed / (loop.time() - started)


async def _serve(directory: str, node_id: int, ports: dict[str, int]) -> None:
    loop = asyncio.get_running_loop()
    raft_ports = {int(peer): port for peer, port in ports.items()}
    async with open_store(Path(directory), node_id, raft_ports) as (store, driver):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            request: dict[str, Any] = json.loads(line)
            match request["command"]:
                case "leader":
                    _print_result(driver.status.leader)
                case "found":
                    await create_broker_and_topic(store)
                    _print_result(driver.status.commit_index)
                case "load":
                    _print_result(
                        await measure_commit_rate(store, request["in_flight"], request["seconds"], request["batch"])
                    )


def _print_result(result: float) -> None:
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    logging.getLogger("chronik").setLevel(logging.ERROR)  # warnings about a stalled event loop are expected under load
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    run_with_uvloop(_serve(**json.loads(sys.stdin.readline())))
