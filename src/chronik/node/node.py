"""One node, put together: config -> parts -> start, in order; stop, in the opposite order.

Nothing waits in the constructor. Every background task is supervised: one that dies stops the node, loudly.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from chronik.admin.topic_plans import TopicPlanner
from chronik.admin.topics import TopicAdmin
from chronik.api.routing.router import Interceptor, Router
from chronik.api.shared.context import Services
from chronik.broker.flusher import Flusher
from chronik.broker.housekeeping import Housekeeping
from chronik.broker.partition_changes import PartitionChanges
from chronik.broker.replicas import Replicas
from chronik.broker.requests.fetch_sessions import FetchSessions
from chronik.broker.requests.producer_ids import ProducerIds
from chronik.broker.requests.refusals import RefusedBatches
from chronik.clock import Clock, SystemClock
from chronik.config import Address, NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.coordination.tenure import Coordinators
from chronik.errors import reason_of, unexpected
from chronik.exchange import Dispatch
from chronik.files import FileCache
from chronik.groups.coordinator import GroupCoordinator
from chronik.ids import new_id
from chronik.listeners import WITH_SASL
from chronik.log.files.synced import SyncedOffsets
from chronik.metadata.commands.cluster import AllocateProducerIds
from chronik.metadata.commands.users import AlterScramUser
from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.metadata.stores.store import Acks
from chronik.node.alone import Alone
from chronik.node.data_folder import DataFolder
from chronik.node.descriptors import Descriptors
from chronik.node.http.port import HttpPort
from chronik.node.identity import METADATA_FOLDERS, Mode
from chronik.node.security.authorizing import authorizer_for
from chronik.node.security.first_user import add_first_user
from chronik.node.security.securing import http_tls, listener_securing
from chronik.node.settings import group_config, listener_limits, node_descriptors, static_configs, transaction_config
from chronik.node.standing import Standing, endpoints_of
from chronik.scheduler import Scheduler
from chronik.security.quotas.connections import ConnectionLimits
from chronik.security.quotas.limiter import Limiter
from chronik.server.listener import ACCEPTED_PER_ITERATION, Listener
from chronik.transactions.coordinator import TransactionCoordinator
from chronik.transactions.parts import TransactionParts, transaction_parts

if TYPE_CHECKING:
    from chronik.console.securing import HttpTls
    from chronik.node.http.side import HttpSide
    from chronik.node.status import NodeStatus

logger = logging.getLogger("chronik.node")

STORES: Final = {Mode.STANDALONE: "write-ahead-log(%s)", Mode.CLUSTER: "raft(%s)"}
"""The metadata store of each mode, with its folder below `data_dir`."""


STOP_SECONDS: Final = 2.0
"""How long a node of a cluster takes to transfer leadership and to answer what is under way, together."""

ANSWER_SECONDS_MIN: Final = 0.25
"""The part of it that is left for answers, however long the transfer took."""


class _Parts(msgspec.Struct, frozen=True):
    standing: Standing
    services: Services
    flusher: Flusher
    cache: FileCache
    synced_offsets: SyncedOffsets
    housekeeping: Housekeeping
    changes: PartitionChanges
    router: Router
    listener: Listener
    http_tls: HttpTls | None


class Node:
    def __init__(
        self,
        config: NodeConfig,
        *,
        interceptor: Interceptor | None = None,
        clock: Clock | None = None,
        restore_identity: bool = False,
        first_user: AlterScramUser | None = None,
    ) -> None:
        """`first_user` is added when there are no users yet."""
        self._config = config
        self._interceptor = interceptor
        self._restore_identity = restore_identity
        self._first_user = first_user
        self._clock = clock or SystemClock()
        self._failure: BaseException | None = None
        self._stopped: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._undo: list[Callable[[], Awaitable[None]]] = []
        self.router: Router | None = None
        self.transactions: TransactionCoordinator | None = None
        self.http: HttpPort | None = None
        self._told: NodeStatus | None = None
        self._began = self._clock.monotonic()
        self._stops_at = float("inf")

    async def start(self) -> Address:
        """Returns the address of the main Kafka port when requests are answered.

        Raises ConfigError, DataFolderInUse, DataDamaged, StorageFailed or OSError; then nothing is left running.
        """
        self._stopped = asyncio.Event()
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Answers what is under way, syncs and closes everything. Does nothing the second time."""
        self._stops_at = min(self._stops_at, self._clock.monotonic() + STOP_SECONDS)
        while self._undo:
            undo = self._undo.pop()
            try:
                await undo()
            except Exception as error:
                self._fail(error)
        if self._stopped is not None:
            self._stopped.set()

    async def wait_until_stopped(self) -> None:
        """Raises what made the node stop, unless it was asked to."""
        assert self._stopped is not None
        await self._stopped.wait()
        if self._failure is not None:
            raise self._failure

    # Putting it together

    async def _start(self) -> Address:
        mode = Mode.CLUSTER if self._config.peers else Mode.STANDALONE
        folder = DataFolder(self._config.data_dir, self._config.node_id, mode, restore_identity=self._restore_identity)
        self._undo.append(_later(folder.close))
        folder.open()
        store = STORES[mode] % METADATA_FOLDERS[mode]
        starting = "node %d starting: mode=%s metadata_store=%s data_dir=%s"
        logger.info(starting, self._config.node_id, mode.value, store, self._config.data_dir)
        parts = self._parts(folder)
        self.router = parts.router
        self.transactions = parts.services.transactions
        parts.standing.serve_others(
            parts.router.dispatch, parts.services.scheduler, lambda: self._status(parts).status()
        )
        await self._open(parts)
        await self._join(parts)
        # First those who only wait are answered, or stopping would take as long as the longest of them waits.
        self._undo.append(partial(self._stop_listener, parts.listener))
        self._undo.append(parts.services.groups.close)
        self._undo.append(parts.services.transactions.close)
        self._undo.append(_later(parts.services.stop_waiting))
        self._undo.append(parts.standing.leave)
        await parts.listener.serve()
        if self._config.http is not None:
            self.http = HttpPort(self._config, partial(self._http_side, parts))
            self._undo.append(self.http.stop)
            self._supervise([*await self.http.open(self._config.http)])
        self._undo.append(parts.standing.drain)
        config = self._config
        bound = parts.services.bound
        where = ", ".join(str(address) if len(bound) == 1 else f"{name}://{address}" for name, address in bound.items())
        logger.info("node %d answers Kafka clients on %s, data in %s", config.node_id, where, config.data_dir)
        return next(iter(bound.values()))

    def _parts(self, folder: DataFolder) -> _Parts:
        """Makes the parts, which do nothing yet."""
        config = self._config
        standing = self._standing(folder)
        store = standing.store
        configs = ConfigResolver(store, config.node_id, static_configs(config))
        coordinators = Coordinators(store, config.node_id, OFFSETS_TOPIC)
        flusher = Flusher(self._fail)
        descriptors = node_descriptors(configs)
        cache = FileCache(folder.files, descriptors.open_files)
        synced_offsets = folder.synced_offsets()
        replicas = Replicas(
            config.node_id,
            store,
            configs,
            cache,
            synced_offsets,
            self._clock,
            flusher,
            flush_each_append=config.flush == "group",
            on_fatal=self._fail,
            # A node that stands alone never misses a deletion; and one that has only just learnt whose its folder is
            # cannot be sure that all in it was of that cluster.
            deletions_of=lambda: folder.was_of_cluster if config.peers else None,
        )
        standing.keep_in_sync(replicas, configs)
        producer_ids = ProducerIds(lambda count: _allocate_producer_ids(standing, config.node_id, count))
        transaction_coordinators = Coordinators(store, config.node_id, TRANSACTIONS_TOPIC)
        transactions = self._transactions(standing, configs, replicas, transaction_coordinators, producer_ids)
        planner = TopicPlanner(store, configs, self._clock, new_id, random.randrange)
        services = Services(
            config=config,
            clock=self._clock,
            store=store,
            configs=configs,
            topics=TopicAdmin(store, configs, planner),
            replicas=replicas,
            groups=self._groups(standing, configs, coordinators),
            transactions=transactions.coordinator,
            joining=transactions.joining,
            fetch_sessions=FetchSessions(configs.broker_int("max.incremental.fetch.session.cache.slots")),
            producer_ids=producer_ids,
            coordinators=coordinators,
            transaction_coordinators=transaction_coordinators,
            is_fenced=lambda: standing.is_fenced,
            may_be_replaced=lambda: standing.may_be_replaced,
            controller_id=lambda: standing.controller_id,
            is_gone=standing.is_gone,
            refused_batches=RefusedBatches(self._clock),
            authorizer=authorizer_for(configs),
            scheduler=Scheduler(accepted_max=ACCEPTED_PER_ITERATION),
        )
        router, listener = self._front(services, descriptors)
        return _Parts(
            standing,
            services,
            flusher,
            cache,
            synced_offsets,
            Housekeeping(replicas, synced_offsets, configs, self._clock),
            PartitionChanges(config.node_id, replicas.began.is_set),
            router,
            listener,
            http_tls(config),
        )

    def _front(self, services: Services, descriptors: Descriptors) -> tuple[Router, Listener]:
        """Makes what clients meet: ports, and the way from a request to its handler. Raises ConfigError."""
        config, configs, store = self._config, services.configs, services.store
        gated = [listener.name for listener in config.listeners if listener.protocol in WITH_SASL]
        limiter = Limiter(self._clock, lambda: store.image.quotas)
        router = Router(services, self._fail, self._interceptor, limiter)
        limits = listener_limits(configs)
        listener = Listener(
            {listener.name: listener.address for listener in config.listeners},
            self._dispatch(router, services, gated),
            limits,
            services.outbox,
            connections_max=lambda: min(configs.broker_int("max.connections"), descriptors.connections),
            gated=gated,
            by_address=ConnectionLimits(configs, lambda: limiter.policy),
            securing=listener_securing(config, limits),
            scheduler=services.scheduler,
        )
        return router, listener

    def _dispatch(self, router: Router, services: Services, gated: Sequence[str]) -> Dispatch:
        """Returns the way to the router: through the gate, where a listener has one. Raises ConfigError."""
        if not gated:
            return router.dispatch
        from chronik.node.security.sasl import gate_of

        gate = gate_of(services, router.dispatch, gated)
        assert services.authenticator is not None
        self._undo.append(_later(services.authenticator.close))
        return gate.dispatch

    def _groups(self, standing: Standing, configs: ConfigResolver, coordinators: Coordinators) -> GroupCoordinator:
        return GroupCoordinator(
            standing.store,
            self._clock,
            group_config(configs),
            self._fail,
            coordinators.owns,
            Acks(self._config.offset_acks),
            is_fenced=lambda: standing.is_fenced,
        )

    def _transactions(
        self,
        standing: Standing,
        configs: ConfigResolver,
        replicas: Replicas,
        coordinators: Coordinators,
        producer_ids: ProducerIds,
    ) -> TransactionParts:
        parts = transaction_parts(
            self._config.node_id,
            standing.store,
            replicas,
            self._clock,
            coordinators,
            transaction_config(configs),
            producer_ids.next,
            standing.elsewhere,
            is_fenced=lambda: standing.is_fenced,
            on_fatal=self._fail,
        )
        standing.serve_transactions(parts)
        return parts

    async def _open(self, parts: _Parts) -> None:
        """Takes the ports, and reads what is on disk."""
        store, replicas = parts.services.store, parts.services.replicas
        self._undo.append(parts.listener.stop)
        parts.services.bound.update(await parts.listener.bind())
        await parts.standing.bind()
        self._undo.append(store.close)
        await store.start()
        self._undo.append(_later(parts.synced_offsets.close))
        self._undo.append(_later(parts.cache.close))
        store.subscribe(lambda delta: parts.services.topic_bytes.follow(delta, store.image))
        if parts.services.authorizer is not None:
            store.subscribe(parts.services.authorizer.follow)
        store.subscribe(parts.router.limiter.follow)
        store.subscribe(replicas.apply)
        store.subscribe(parts.changes.follow)
        store.subscribe(parts.housekeeping.follow)
        self._undo.append(_later(replicas.close))
        self._undo.append(_later(parts.flusher.close))
        self._undo.append(parts.flusher.drain)

    async def _join(self, parts: _Parts) -> None:
        """Takes the node's place among the others, and begins its jobs."""
        replicas, standing = parts.services.replicas, parts.standing
        await standing.join(endpoints_of(self._config, parts.services.bound))
        for coordinator in (parts.services.groups, parts.services.transactions):
            await coordinator.start()
            self._undo.append(coordinator.close)
            parts.services.store.subscribe(coordinator.follow)
        if standing.is_up_to_date:
            replicas.begin()
        jobs = [*parts.housekeeping.tasks(), *parts.listener.jobs(), *standing.jobs(replicas.begin)]
        if self._first_user is not None:
            adding = partial(add_first_user, standing.store, self._first_user)
            await adding() if standing.is_up_to_date else jobs.append(adding)
        self._supervise(jobs)
        self._undo.append(self._end_tasks)

    def _standing(self, folder: DataFolder) -> Standing:
        if not self._config.peers:
            return Alone(self._config, folder, self._clock, self._fail)
        # Not before it is needed: Raft and its transport are a sixth of what a node that stands alone would load.
        from chronik.node.clustered import Clustered

        return Clustered(self._config, folder, self._clock, self._fail)

    def _status(self, parts: _Parts) -> NodeStatus:
        """Is made when it is first asked for: importing it takes time that clients need not wait for."""
        if self._told is None:
            from chronik.node.status import NodeStatus

            self._told = NodeStatus(
                parts.standing,
                parts.services,
                parts.router,
                parts.listener,
                parts.flusher.times,
                parts.changes,
                self._began,
            )
        return self._told

    def _http_side(self, parts: _Parts) -> HttpSide:
        """Called when the Kafka port answers."""
        from chronik.node.http.side import HttpSide

        return HttpSide(parts.services, parts.router, parts.standing, self._status(parts), parts.http_tls)

    async def _stop_listener(self, listener: Listener) -> None:
        """Answer requests that are under way: in a cluster only for the rest of STOP_SECONDS, since clients retry them
        on another node, and a node without a quorum cannot answer them at all."""
        seconds_left = max(self._stops_at - self._clock.monotonic(), ANSWER_SECONDS_MIN)
        await listener.stop(seconds_left if self._config.peers else None)

    # Supervision

    def _supervise(self, jobs: list[Callable[[], Awaitable[None]]]) -> None:
        for job in jobs:
            task = asyncio.ensure_future(job())
            assert isinstance(task, asyncio.Task)
            task.add_done_callback(self._task_ended)
            self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fail(self, error: BaseException) -> None:
        """Stops the node, which cannot go on: what it holds in memory may no longer be what is on disk."""
        if self._failure is None:
            self._failure = reason_of(error)
            logger.critical("the node stops: %s", self._failure, exc_info=unexpected(error))
            if self._stopped is not None:
                self._stopped.set()


async def _allocate_producer_ids(standing: Standing, node_id: int, count: int) -> int:
    result = await standing.store.propose(AllocateProducerIds(node_id, standing.broker_epoch, count))
    return result.value


def _later(function: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        function()

    return call
