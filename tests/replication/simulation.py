"""A deterministic simulation of a cluster's replication on virtual time with fault injection, driven by one seed.

Processes are killed, paused or lose power or their disks; disks are slow and clocks disagree; calls are lost, delayed
and cut off in one or both directions; metadata arrives late, and proposals are lost or committed long afterwards;
brokers are fenced, rightly and wrongly, leaders moved, partitions reassigned, and topics created and deleted, while
clients write and read. `Checker` verifies continuously. After the faults stop, all replicas must be in sync within a
time limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from chronik.broker.replica import Replica
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition, Topic
from chronik.protocol.errors import ErrorCode
from tests.replication.checker import Key, ReplicationChecker, Violation
from tests.replication.clients import ALL, PATIENCE_SECONDS, Consumer, Producer
from tests.replication.controller import SimulatedController
from tests.replication.host import Host, Process, TwinDisk
from tests.replication.metadata_log import SimulatedMetadataLog
from tests.replication.network import Network
from tests.replication.pipelined import PipelinedProducer
from tests.replication.virtual_loop import ProcessRun, VirtualClock, VirtualLoop

FAULTY_SECONDS: Final = 12.0
"""Duration of the faults: about twenty faults."""
CALM_SECONDS_MAX: Final = 40.0
"""Time limit for convergence: a hanging call, a repeated registration and an ISR check, one after the other."""
LOOK_SECONDS: Final = 0.25

UNKNOWN: Final = ErrorCode.REQUEST_TIMED_OUT


class ReplicationSimulation:
    """A simulated cluster, its clients and its faults."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.loop = VirtualLoop()
        self.network = Network(self.loop, self.chance)
        self.consensus = SimulatedMetadataLog(self.loop, self.chance)
        self.lives: list[ProcessRun] = []
        self.hosts: dict[int, Host] = {}
        for node_id in range(1, self.chance.choice((3, 3, 4, 5)) + 1):
            clock = VirtualClock(self.loop, self.chance.uniform(0, 1000), self.chance.uniform(0.97, 1.03))
            slowness = self.chance.choice((0.002, 0.02, 0.2))
            self.hosts[node_id] = Host(node_id, self.new_id(), clock, TwinDisk(), slowness)
        self.checker = ReplicationChecker(self.consensus.image, self.hosts)
        self.consensus.on_committed = self._committed
        self._controller = self.new_controller()
        self.produce_seconds_max = self.chance.choice((0.1, 0.3))
        self.fault_seconds_max = self.chance.choice((0.8, 2.5))
        self._static = {
            "replica.lag.time.max.ms": "1500",
            "min.insync.replicas": self.chance.choice(("1", "2")),
        }
        self.deletes_records = self.chance.random() < 0.25
        self.have_clients_left = False
        self.is_calm = False
        self.replacing: Host | None = None
        """Host with a replaced disk, until its new process is registered."""
        self._trace = hashlib.blake2b(digest_size=16)
        self.faults = 0

    def new_id(self) -> bytes:
        return self.chance.getrandbits(128).to_bytes(16, "big")

    def note(self, *what: object) -> None:
        self._trace.update(f"{self.loop.time():.6f} {what}\n".encode())

    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the simulation. Raises Violation, or any exception of a node's components."""
        original = Replica._commit
        moved = self.moved

        def commit(replica: Replica, high_watermark: int) -> None:
            original(replica, high_watermark)
            moved(replica)

        patched: Any = Replica
        patched._commit = commit
        try:
            self.loop.run(self._story(), self.lives)
        finally:
            patched._commit = original

    async def _story(self) -> None:
        for host in self.hosts.values():
            self.start(host)
        await self.until(lambda: all(map(self.is_up, self.members())), 30.0, "nodes to register")
        self._controller.create_initial_topics()
        began_at = self.loop.time()
        actors = [self._keep_breaking(), self._controller.run(), self._keep_looking(), *self.clients()]
        self._tasks = [self.loop.create_task(actor) for actor in actors]
        await self.until(lambda: self.loop.time() >= began_at + FAULTY_SECONDS, FAULTY_SECONDS + 1, "faults")
        self._calm_down()
        await self.until(self._is_in_sync, CALM_SECONDS_MAX, "all replicas to be in sync")
        await self.wait_until_idle()
        await self._write_once_more()
        self.have_clients_left = True
        self.checker.check_end()

    # -- members -------------------------------------------------------------------------------------------------------

    def members(self) -> list[Host]:
        return list(self.hosts.values())

    def replica_candidates(self) -> list[int]:
        """Return the nodes that may have replicas."""
        return sorted(self.hosts)

    # -- components, overridden by other simulations -------------------------------------------------------------------

    def new_controller(self) -> SimulatedController:
        return SimulatedController(self)

    def new_process(self, host: Host) -> Process:
        return Process(host, self.loop, self.chance, self.network, self.consensus)

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        consumer = Consumer(self)
        producers = [Producer(self, number, is_idempotent=number % 2 == 0) for number in range(1, 4)]
        self._pipelined = [PipelinedProducer(self, number) for number in range(4, 6)]
        return [consumer.run(), *(each.run() for each in producers), *(each.run() for each in self._pipelined)]

    def moved(self, replica: Replica) -> None:
        """Handle an advance of the replica's high watermark."""
        self.checker.on_high_watermark(replica)

    async def wait_until_idle(self) -> None:
        """Wait until all producers are idle after the faults."""
        await self.until(
            lambda: all(each.is_idle for each in self._pipelined), CALM_SECONDS_MAX, "all batches to be acknowledged"
        )

    # -- progress -----------------------------------------------------------------------------------------------------

    async def until(self, is_done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = self.loop.time() + seconds
        while not is_done():
            self._fail_if_broken()
            if self.loop.time() > deadline:
                raise Violation(f"waited {seconds} s for {what}: {self.summary()}")
            await asyncio.sleep(0.05)
        self._fail_if_broken()

    def _fail_if_broken(self) -> None:
        if self.loop.failures:
            raise self.loop.failures[0]
        for task in getattr(self, "_tasks", ()):
            if task.done() and task.exception() is not None:
                raise task.exception()

    async def _write_once_more(self) -> None:
        producer = Producer(self, 99, is_idempotent=False)
        for topic in [each for each in self.consensus.image.topics.values() if not each.internal]:
            for index in range(len(topic.partitions)):
                deadline = self.loop.time() + 10.0
                while not await producer.send((topic.id, index), ALL):
                    if self.loop.time() > deadline:
                        raise Violation(f"{topic.name}-{index} accepts no records: {self.summary()}")
                    await asyncio.sleep(0.1)
        await self.until(self._is_in_sync, CALM_SECONDS_MAX, "all replicas to be in sync")

    def _is_in_sync(self) -> bool:
        for topic in self.consensus.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if set(partition.isr) != set(partition.replicas) or partition.is_reassigning:
                    return False
                leader = self.hosts[partition.leader].process if partition.leader != NO_LEADER else None
                replica = leader.led(topic.name, index) if leader is not None else None
                if replica is None or replica.high_watermark < replica.log.log_end_offset:
                    return False
        return all(
            self.is_up(host) and host.process.store.image.applied_index == len(self.consensus.log)
            for host in self.members()
            if host.process is not None
        )

    def summary(self) -> str:
        image = self.consensus.image
        partitions = [
            f"{topic.name}-{index} {partition}"
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]
        brokers = [f"{broker.id} {broker.status.value} {broker.epoch}" for broker in image.brokers.values()]
        return f"{partitions}; {brokers}; {len(self.consensus.log)} commands"

    def _committed(self) -> None:
        self.note(self.consensus.image.applied_index, self.consensus.image.state_hash)
        self.checker.check_in_sync()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.checker.check()
            self.note(self.loop.steps, self.network.carried, self.checker.acknowledged)

    # -- hosts --------------------------------------------------------------------------------------------------------

    def start(self, host: Host) -> None:
        process = host.process = self.new_process(host)
        self.lives.append(process.life)
        boot = partial(process.boot, self._static, self.new_id())
        self.loop.call_soon(boot, context=process.life.context)

    def is_up(self, host: Host) -> bool:
        return host.process is not None and host.process.is_registered and host.process.epoch >= 0

    def kill(self, host: Host, *, loses_power: bool) -> None:
        process = host.process
        if process is None:
            return
        process.life.is_over = True
        host.process = None
        if process.is_booted:
            self.consensus.followers.pop(host.id, None)
            applied = process.store.image.applied_index
            host.index = self.chance.randint(0, applied) if self.chance.random() < 0.3 else applied
            self.network.process_died(process.calls, is_noticed=not loses_power)
        if loses_power:
            host.files = host.files.crash(self.chance.getrandbits(32))
        self.note("killed", host.id, loses_power)

    def replace_disk(self, host: Host) -> None:
        process = host.process
        if process is not None and process.is_booted:
            # The process may be about to remove all others from an ISR, after which its disk is the only copy.
            self.consensus.silenced.add(process.store.incarnation)
        self.kill(host, loses_power=True)
        host.files, host.directory_id, host.index = TwinDisk(), self.new_id(), 0
        self.replacing = host

    def _may_replace_disk_of(self, host: Host) -> bool:
        """Return whether another stable disk has all records."""
        if self.replacing is not None or not all(map(self.is_up, self.members())):
            return False
        return all(
            len(partition.isr) >= 2 or host.id not in partition.isr
            for topic in self.consensus.image.topics.values()
            for partition in topic.partitions
        )

    # -- faults -------------------------------------------------------------------------------------------------------

    async def _keep_breaking(self) -> None:
        while not self.is_calm:
            await asyncio.sleep(self.chance.uniform(0.1, self.fault_seconds_max))
            if self.is_calm:
                return
            if self.replacing is not None:
                if not self.is_up(self.replacing):
                    continue
                self.replacing = None
            faults = (self._kill, self._cut_power, self._replace, self._pause, self._cut, self.isolate)
            self.faults += 1
            self.chance.choices(faults, (2, 1, 1, 1, 2, 1))[0](self.chance.choice(list(self.hosts.values())))

    def _kill(self, host: Host) -> None:
        self.kill(host, loses_power=False)
        self.later(self.chance.choice((0.01, 0.5, 2.0)), partial(self._start_again, host))

    def _cut_power(self, host: Host) -> None:
        self.kill(host, loses_power=True)
        self.later(self.chance.choice((0.01, 0.5, 2.0)), partial(self._start_again, host))

    def _replace(self, host: Host) -> None:
        if self._may_replace_disk_of(host):
            self.replace_disk(host)
            self.later(self.chance.choice((0.01, 0.3)), partial(self._start_again, host))

    def _start_again(self, host: Host) -> None:
        if host.process is None:
            self.start(host)

    def _pause(self, host: Host) -> None:
        process = host.process
        if process is not None:
            process.life.is_paused = True
            self.later(self.chance.uniform(0.1, 3.0), partial(self.loop.resume, process.life))

    def _cut(self, host: Host) -> None:
        links = {(host.id, other) for other in self.hosts if other != host.id and self.chance.random() < 0.7}
        kind = self.chance.randrange(3)
        links = links if kind == 0 else {(b, a) for a, b in links} if kind == 1 else links | {(b, a) for a, b in links}
        self.network.cut |= links
        self.later(self.chance.uniform(0.2, 3.0), lambda: self.network.cut.difference_update(links))

    def isolate(self, host: Host) -> None:
        """Disconnect a process from the metadata log; clients and peers still reach it."""
        process = host.process
        if process is not None:
            process.is_cut_off = True
            self.later(self.chance.uniform(0.2, 3.0), lambda: setattr(process, "is_cut_off", False))

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        self.loop.call_later(seconds, action)

    def _calm_down(self) -> None:
        self.is_calm = True
        self.network.heal()
        self.consensus.heal()
        for host in self.hosts.values():
            if host.process is None:
                self.start(host)
            else:
                host.process.is_cut_off = False
                self.loop.resume(host.process.life)
            host.sync_seconds_max = 0.005

    # -- client helpers -----------------------------------------------------------------------------------------------

    def some_partitions(self) -> list[tuple[Topic, int, Partition]]:
        """Return a random partition, or an empty list."""
        partitions = [
            (topic, index, partition)
            for topic in self.consensus.image.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]
        return self.chance.sample(partitions, min(1, len(partitions)))

    def some_partition(self) -> tuple[Key, str] | None:
        found = [((topic.id, index), topic.name) for topic, index, _ in self.some_partitions()]
        return found[0] if found else None

    def exists(self, key: Key) -> bool:
        return key[0] in self.consensus.image.topics_by_id

    def believed_leader(self, key: Key) -> Process | None:
        """Return the leader's process, or another one to simulate outdated client metadata."""
        leader = self.consensus.image.topics_by_id[key[0]].partitions[key[1]].leader
        if leader == NO_LEADER or (not self.is_calm and self.chance.random() < 0.1):
            leader = self.chance.choice(list(self.hosts))
        process = self.hosts[leader].process
        return process if process is not None and process.is_booted else None

    async def ask_leader(
        self, key: Key, ask: Callable[[Process], Coroutine[Any, Any, tuple[ErrorCode, int]]]
    ) -> tuple[ErrorCode, int]:
        if not self.exists(key):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        process = self.believed_leader(key)
        if process is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        answer: asyncio.Future[tuple[ErrorCode, int]] = self.loop.create_future()

        def arrive() -> None:
            self.loop.create_task(_answer(self.loop, ask(process), answer, self.network.delay))

        self.loop.call_later(self.network.delay(), arrive, context=process.life.context)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await answer
        except TimeoutError:
            return UNKNOWN, -1


async def _answer(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, tuple[ErrorCode, int]],
    answer: asyncio.Future[tuple[ErrorCode, int]],
    delay: Callable[[], float],
) -> None:
    result = await work

    def arrive() -> None:
        if not answer.done():
            answer.set_result(result)

    loop.call_later(delay(), arrive)
