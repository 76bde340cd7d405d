"""A simulated machine: its disk, its clock, and its process while it is running.

The process consists of a node's components without sockets: replicas, flusher, replication, registration and the
Produce handler.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from chronik.api import produce
from chronik.api.shared.context import RequestContext, Services
from chronik.broker.flusher import Flushable, Flusher
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.broker.requests.decompression import BatchDecompressor
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.configs.resolver import ConfigResolver
from chronik.files import FileCache
from chronik.files.interface import parent_directory
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.sync import SyncTask
from chronik.metadata import levels
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.replication.replication import OffsetCheckpoints, Replication
from chronik.request_reply import ConnectedClient
from tests.files.simulated_files import Inode, NameChange, SimulatedFileSystem
from tests.replication.metadata_log import SimulatedMetadataLog, VirtualStore
from tests.replication.network import Network, VirtualCalls
from tests.replication.virtual_loop import ProcessRun, SlowDisk, VirtualClock, VirtualLoop

PRODUCE_VERSION = 13
"""A Produce version with topic ids, because topics are deleted and created again under the same name."""


@dataclass(slots=True)
class FolderMove(NameChange):
    """A rename of a directory and everything below it."""

    def apply(self, names: dict[str, Inode]) -> None:
        assert self.old_path is not None
        for name in [name for name in names if name == self.old_path or name.startswith(self.old_path + "/")]:
            names[self.path + name[len(self.old_path) :]] = names.pop(name)


class TwinDisk(SimulatedFileSystem):
    """A simulated disk with directory renames."""

    def rename(self, path: str, new_path: str) -> None:
        inode = self._names.get(path)
        if inode is None or inode.content is not None or parent_directory(new_path) not in self._names:
            super().rename(path, new_path)
            return
        self.count_event("rename", path)
        # The contents move in one step; power failures between single names are covered by other tests.
        for folder in [name for name in self._pending_names if name == path or name.startswith(path + "/")]:
            for change in self._pending_names.pop(folder):
                change.apply(self._durable_names)
        self._rename_durably_later(path, FolderMove(new_path, inode, path))

    def crash(self, seed: int) -> TwinDisk:
        after = TwinDisk()
        after.__dict__.update(super().crash(seed).__dict__)
        return after


class VirtualFlusher(Flusher):
    """A flusher that does not depend on the wall clock."""

    def __init__(self, disk: SlowDisk, loop: VirtualLoop) -> None:
        super().__init__(loop.failures.append)
        self._threads = cast(Any, disk)

    def _can_sync_inline(self, log: Flushable, ticket: SyncTask) -> bool:
        """Never sync inline; the real flusher decides by the wall clock."""
        return False


@dataclass
class Host:
    """A machine and its current process."""

    id: int
    directory_id: bytes
    clock: VirtualClock
    files: TwinDisk
    sync_seconds_max: float
    process: Process | None = None
    index: int = 0
    """Index up to which the disk contains the metadata log."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.life.is_paused


@dataclass
class ProduceServices:
    """The services that the Produce handler needs."""

    replicas: ReplicaManager
    store: VirtualStore
    clock: VirtualClock
    is_fenced: Callable[[], bool]
    rejected_batches: RejectedBatches
    decompressor: BatchDecompressor
    authorizer: ClassVar[None] = None

    @property
    def image(self) -> Image:
        return self.store.image


class Process:
    """A process of a node. `boot` creates all components in the context of this run."""

    def __init__(
        self, host: Host, loop: VirtualLoop, chance: random.Random, network: Network, consensus: SimulatedMetadataLog
    ) -> None:
        self.host = host
        self.life = ProcessRun()
        self.loop = loop
        self.epoch = -1
        self.chance = chance
        self.network = network
        self.consensus = consensus
        self.is_booted = False
        self.is_cut_off = False
        """Whether the process is disconnected from the metadata log."""

    def boot(self, static: dict[str, str], incarnation: bytes) -> None:
        host = self.host
        self.store = VirtualStore(host.id, incarnation, self.consensus, self.life, lambda: self.is_cut_off)
        configs = self.configs = ConfigResolver(self.store, host.id, static)
        self.calls = VirtualCalls(host.id, self.network, self.life)
        self.synced_offsets = SyncedOffsets(host.files, "synced-offsets")
        disk = SlowDisk(lambda: self.chance.uniform(0.0002, host.sync_seconds_max))
        self.replicas = ReplicaManager(
            host.id,
            self.store,
            configs,
            FileCache(host.files),
            self.synced_offsets,
            host.clock,
            VirtualFlusher(disk, self.loop),
            flush_each_append=True,
            on_fatal=self.loop.failures.append,
        )
        replication = Replication(
            host.id, self.store, self.replicas, configs, self.calls, host.clock, lambda: self.epoch
        )
        replication._checkpoints = OffsetCheckpoints(self.store, self.replicas, self.chance.choice((1.0, 30.0)))
        self.store.begin(host.index)
        self.store.subscribe(self.replicas.apply_delta)
        jobs = [*replication.jobs(), self.replicas.removals.run, self.store.keep_applying, self._register]
        for job in [*jobs, self._keep_synced_offsets]:
            self._supervise(cast(Coroutine[Any, Any, None], job()))
        self._services = cast(Services, self._parts_for_produce())
        self.is_booted = True

    def _parts_for_produce(self) -> ProduceServices:
        clock = self.host.clock
        return ProduceServices(
            self.replicas, self.store, clock, lambda: self.is_fenced, RejectedBatches(clock), BatchDecompressor()
        )

    def _supervise(self, job: Coroutine[Any, Any, None]) -> None:
        self.loop.create_task(job).add_done_callback(self._job_ended)

    def _job_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.failures.append(error)

    async def _register(self) -> None:
        host = self.host
        await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.5)))
        while True:
            try:
                result = await self.store.propose(
                    RegisterBroker(
                        host.id,
                        "host",
                        9092,
                        None,
                        self.store.incarnation,
                        host.directory_id,
                        levels=(levels.LOWEST, levels.HIGHEST),
                    )
                )
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            self.epoch = result.value
            self.replicas.start()
            return

    async def _keep_synced_offsets(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.5, 5.0))
            self.synced_offsets.sync()

    # -- client requests ----------------------------------------------------------------------------------------------

    @property
    def is_fenced(self) -> bool:
        """Return whether the image says that the broker is fenced.

        That a broker also fences itself without heartbeat responses is not needed for safety and not simulated.
        """
        broker = self.store.image.brokers.get(self.host.id)
        return broker is None or broker.is_fenced or broker.epoch != self.epoch

    @property
    def is_registered(self) -> bool:
        """Return whether this run of the process is registered and knows it."""
        broker = self.consensus.image.brokers.get(self.host.id)
        return self.epoch >= 0 and broker is not None and broker.epoch == self.epoch

    async def produce(self, topic_id: bytes, index: int, records: bytes, acks: int) -> tuple[ErrorCode, int]:
        request = ProduceRequest(
            acks=acks,
            timeout_ms=3000,
            topic_data=[
                TopicProduceData(
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=index, records=memoryview(bytearray(records)))],
                )
            ],
        )
        response = await produce.handle(
            self._services, request, RequestContext(PRODUCE_VERSION, "client", ConnectedClient("host", 1, 1))
        )
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset

    def led(self, topic: str, index: int) -> Replica | None:
        """Return the replica if this node believes that it is the leader and may serve it."""
        if not self.is_booted or self.is_fenced:
            return None
        try:
            return self.replicas.get_leader(topic, index)
        except KafkaError:
            return None
