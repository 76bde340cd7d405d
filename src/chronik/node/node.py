"""A node: creates its components from the config, starts them in order, and stops them in reverse order.

The constructor starts nothing. Every background task is supervised: if one fails, the node stops.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from chronik.admin.topic_planner import TopicPlanner
from chronik.admin.topics import TopicAdmin
from chronik.api.routing.router import Interceptor, Router
from chronik.api.shared.context import Services
from chronik.broker.flusher import Flusher
from chronik.broker.log_maintenance import LogMaintenance
from chronik.broker.partition_counters import PartitionChangeCounters
from chronik.broker.replica_manager import ReplicaManager
from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.broker.requests.producer_ids import ProducerIdAllocator
from chronik.broker.requests.rejected_batches import RejectedBatches
from chronik.clock import Clock, SystemClock
from chronik.config import Address, NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.coordination.host import CoordinatorTerms
from chronik.errors import exc_info_if_unexpected, find_root_cause
from chronik.files import FileCache, FileSystem
from chronik.groups.coordinator import GroupCoordinator
from chronik.ids import generate_id
from chronik.listeners import SASL_PROTOCOLS
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata.commands.cluster import AllocateProducerIds
from chronik.metadata.commands.security import AlterScramUser
from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.metadata.stores.store import Acks
from chronik.node.data_directory import DataDirectory
from chronik.node.descriptors import DescriptorLimits
from chronik.node.http.port import LazyHttpPort
from chronik.node.http.registry_url import REGISTRY_PATH, build_registry_url
from chronik.node.identity import METADATA_DIRECTORIES, DirectoryMode
from chronik.node.node_mode import NodeMode, build_advertised_endpoints
from chronik.node.security_setup import add_first_user, create_http_tls, create_node_authorizer, create_tls_listeners
from chronik.node.standalone_mode import StandaloneMode
from chronik.request_reply import Dispatch
from chronik.scheduler import Scheduler
from chronik.security.quotas.connection_limits import ConnectionLimits
from chronik.security.quotas.limiter import QuotaLimiter
from chronik.server.listener import ACCEPTS_PER_ITERATION, ClientListeners
from chronik.transactions.coordinator import TransactionComponents, TransactionCoordinator, build_transaction_components

if TYPE_CHECKING:
    from chronik.console.https import HttpTls
    from chronik.health.reports import HealthReport
    from chronik.history.store import HistoryAnswer, HistoryQuery
    from chronik.node.health.monitor import HealthMonitor
    from chronik.node.history.sampler import HistorySampler
    from chronik.node.http.server import NodeHttpServer
    from chronik.node.status import NodeStatusSource
from chronik.groups.config import GroupConfig
from chronik.node.descriptors import divide_descriptors, raise_descriptor_limit
from chronik.server.connection import ListenerLimits
from chronik.transactions.config import TransactionConfig

logger = logging.getLogger("chronik.node")

METADATA_STORES: Final = {DirectoryMode.STANDALONE: "write-ahead-log(%s)", DirectoryMode.CLUSTER: "raft(%s)"}
"""The description of the metadata store in each mode, with the store's directory below `data_dir`."""


STOP_SECONDS: Final = 2.0
"""The time in seconds in which a node that is shutting down transfers its leadership and completes pending requests."""

RESPONSE_SECONDS_MIN: Final = 0.25
"""The part of STOP_SECONDS reserved for completing pending requests, in seconds."""


HEALTH_START_SECONDS: Final = 5.0
"""The time in seconds after its start at which a node starts to monitor the cluster's health, unless it is asked."""

HISTORY_START_SECONDS: Final = 8.0
"""The time in seconds after its start at which a node starts to sample its history, unless it is asked."""


class _NodeComponents(msgspec.Struct, frozen=True):
    """The components of a node."""

    node_mode: NodeMode
    files: FileSystem
    services: Services
    flusher: Flusher
    cache: FileCache
    synced_offsets: SyncedOffsets
    housekeeping: LogMaintenance
    changes: PartitionChangeCounters
    router: Router
    listener: ClientListeners
    http_tls: HttpTls | None


class Node:
    """A Chronik node: a broker with its metadata store and HTTP server."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        interceptor: Interceptor | None = None,
        clock: Clock | None = None,
        restore_identity: bool = False,
        first_user: AlterScramUser | None = None,
    ) -> None:
        """Create a node without starting it. If the cluster has no users, `first_user` is added at the start."""
        self._config = config
        self._interceptor = interceptor
        self._restore_identity = restore_identity
        self._first_user = first_user
        self._clock = clock or SystemClock()
        self._failure: BaseException | None = None
        self._stopped: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._cleanup: list[Callable[[], Awaitable[None]]] = []
        self.router: Router | None = None
        self.transactions: TransactionCoordinator | None = None
        self.http: LazyHttpPort | None = None
        self.registry_url: str | None = None
        """URL of the schema registry's own listener, if there is one."""
        self._http_server: NodeHttpServer | None = None
        self._open_registry: Callable[[Address], Awaitable[str]] | None = None
        self._node_status: NodeStatusSource | None = None
        self._health_monitor: HealthMonitor | None = None
        self._history: HistorySampler | None = None
        self._loading_history = asyncio.Lock()
        self._started_at = self._clock.monotonic()
        self._stops_at = float("inf")

    async def start(self) -> Address:
        """Start the node, and return the address of the main Kafka listener once the node accepts requests.

        On an error, everything that was started is stopped again.

        Raises:
            ConfigError: The configuration does not fit the data directory, or is invalid.
            DataDirectoryInUse: Another process uses the data directory.
            DamagedDataError: Data on disk is damaged.
            StorageError: A write or sync failed.
            OSError: A port cannot be bound, or a file not opened.
        """
        self._stopped = asyncio.Event()
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Complete pending requests, then sync and close all components. Do nothing if the node is already stopped."""
        self._stops_at = min(self._stops_at, self._clock.monotonic() + STOP_SECONDS)
        while self._cleanup:
            clean_up = self._cleanup.pop()
            try:
                await clean_up()
            except Exception as error:
                self._fail(error)
        if self._stopped is not None:
            self._stopped.set()

    async def wait_until_stopped(self) -> None:
        """Wait until the node has stopped; raise the error that stopped it, if any."""
        assert self._stopped is not None
        await self._stopped.wait()
        if self._failure is not None:
            raise self._failure

    # Creation of the components

    async def _start(self) -> Address:
        mode = DirectoryMode.CLUSTER if self._config.peers else DirectoryMode.STANDALONE
        folder = DataDirectory(
            self._config.data_dir, self._config.node_id, mode, restore_identity=self._restore_identity
        )
        self._cleanup.append(_to_coroutine_function(folder.close))
        folder.open()
        store = METADATA_STORES[mode] % METADATA_DIRECTORIES[mode]
        starting = "node %d starting: mode=%s metadata_store=%s data_dir=%s"
        logger.info(starting, self._config.node_id, mode.value, store, self._config.data_dir)
        parts = self._create_components(folder)
        self.router = parts.router
        self.transactions = parts.services.transactions
        parts.node_mode.serve_other_nodes(
            parts.router.dispatch,
            parts.services.scheduler,
            lambda: self._get_status_source(parts).status(),
            partial(self._receive_health_report, parts),
            partial(self._answer_history_query, parts),
        )
        parts.services.find_health = partial(self._find_health, parts)
        parts.services.find_history = partial(self._find_history, parts)
        parts.services.latest_health = lambda: None if self._health_monitor is None else self._health_monitor.latest
        await self._open(parts)
        await self._join(parts)
        # Waiting requests are answered first; otherwise, stopping would take as long as the longest wait.
        self._cleanup.append(partial(self._stop_client_listeners, parts.listener))
        self._cleanup.append(parts.services.groups.close)
        self._cleanup.append(parts.services.transactions.close)
        self._cleanup.append(_to_coroutine_function(parts.services.complete_waiting_requests))
        self._cleanup.append(parts.node_mode.report_offline)
        await parts.listener.serve()
        self._open_registry = partial(self._serve_registry, parts)
        if self._config.registry is not None:
            await self._serve_registry(parts, self._config.registry)
            logger.info("node %d serves its schema registry on %s", self._config.node_id, self.registry_url)
            if self._config.http is None:
                self._start_supervised_tasks(self._get_http_server(parts).background_jobs())
        if self._config.http is not None:
            self.http = LazyHttpPort(self._config, partial(self._get_http_server, parts))
            self._cleanup.append(self.http.stop)
            self._start_supervised_tasks([*await self.http.open(self._config.http)])
        parts.services.registry_url = self._find_registry_url(parts)
        self._cleanup.append(parts.node_mode.drain)
        config = self._config
        bound = parts.services.bound_addresses
        listening_on = ", ".join(
            str(address) if len(bound) == 1 else f"{name}://{address}" for name, address in bound.items()
        )
        logger.info("node %d answers Kafka clients on %s, data in %s", config.node_id, listening_on, config.data_dir)
        return next(iter(bound.values()))

    async def open_registry(self, address: Address) -> str:
        """Serve the schema registry of a running node on a port of its own, unless it is served already.

        Brokers for tests use this: they have no HTTP port, so that they start faster.

        Returns:
            The URL of the registry.

        Raises:
            OSError: The port cannot be bound.
        """
        assert self._open_registry is not None
        return await self._open_registry(address)

    async def _serve_registry(self, parts: _NodeComponents, address: Address) -> str:
        if not parts.services.registry_url:
            server = self._get_http_server(parts)
            self._cleanup.append(server.stop)
            self.registry_url = await server.serve_registry(address)
            parts.services.registry_url = self._find_registry_url(parts)
        return parts.services.registry_url

    def _find_registry_url(self, parts: _NodeComponents) -> str:
        """Return the URL at which Kafka clients reach the node's schema registry; empty if they cannot reach it."""
        http_url = None if self.http is None else self.http.url
        url = self.registry_url or (None if http_url is None else f"{http_url}{REGISTRY_PATH}")
        endpoint = build_advertised_endpoints(self._config, parts.services.bound_addresses)[0]
        return "" if url is None else build_registry_url(url, endpoint.host)

    def _create_components(self, folder: DataDirectory) -> _NodeComponents:
        """Create the components of the node without starting them."""
        config = self._config
        node_mode = self._create_node_mode(folder)
        store = node_mode.store
        configs = ConfigResolver(store, config.node_id, collect_static_configs(config))
        coordinators = CoordinatorTerms(store, config.node_id, OFFSETS_TOPIC)
        flusher = Flusher(self._fail)
        descriptors = divide_node_descriptors(configs)
        cache = FileCache(folder.files, descriptors.open_files)
        synced_offsets = folder.open_synced_offsets()
        replicas = ReplicaManager(
            config.node_id,
            store,
            configs,
            cache,
            synced_offsets,
            self._clock,
            flusher,
            flush_each_append=config.flush == "group",
            on_fatal=self._fail,
            # A standalone node never misses a deletion. A node of a cluster that has just learned the cluster id of its
            # directory cannot be sure that everything in it belongs to that cluster.
            find_deleting_cluster=lambda: folder.previous_cluster_id if config.peers else None,
        )
        node_mode.start_replication(replicas, configs)
        producer_ids = ProducerIdAllocator(lambda count: _allocate_producer_ids(node_mode, config.node_id, count))
        transaction_coordinators = CoordinatorTerms(store, config.node_id, TRANSACTIONS_TOPIC)
        transactions = self._create_transaction_components(
            node_mode, configs, replicas, transaction_coordinators, producer_ids
        )
        planner = TopicPlanner(store, configs, self._clock, generate_id, random.randrange)
        services = Services(
            config=config,
            clock=self._clock,
            store=store,
            configs=configs,
            topics=TopicAdmin(store, configs, planner),
            replicas=replicas,
            groups=self._create_group_coordinator(node_mode, configs, coordinators),
            transactions=transactions.coordinator,
            transaction_joiner=transactions.joiner,
            fetch_sessions=FetchSessionCache(configs.broker_int("max.incremental.fetch.session.cache.slots")),
            producer_ids=producer_ids,
            coordinators=coordinators,
            transaction_coordinators=transaction_coordinators,
            is_fenced=lambda: node_mode.is_fenced,
            lease_expired_seconds=lambda: node_mode.lease_expired_seconds,
            may_be_replaced=lambda: node_mode.may_be_replaced,
            controller_id=lambda: node_mode.controller_id,
            is_unreachable=node_mode.is_recently_lost,
            rejected_batches=RejectedBatches(self._clock),
            authorizer=create_node_authorizer(configs),
            scheduler=Scheduler(accepted_max=ACCEPTS_PER_ITERATION),
        )
        router, listener = self._create_listeners(services, descriptors)
        return _NodeComponents(
            node_mode,
            folder.files,
            services,
            flusher,
            cache,
            synced_offsets,
            LogMaintenance(replicas, synced_offsets, configs, self._clock),
            PartitionChangeCounters(config.node_id, replicas.registered.is_set),
            router,
            listener,
            create_http_tls(config),
        )

    def _create_listeners(self, services: Services, descriptors: DescriptorLimits) -> tuple[Router, ClientListeners]:
        """Create the client listeners and the router for their requests.

        Raises:
            ConfigError: A listener config is invalid.
        """
        config, configs, store = self._config, services.configs, services.store
        gated = [listener.name for listener in config.listeners if listener.protocol in SASL_PROTOCOLS]
        limiter = QuotaLimiter(self._clock, lambda: store.image.quotas)
        router = Router(services, self._fail, self._interceptor, limiter)
        limits = build_listener_limits(configs)
        listener = ClientListeners(
            {listener.name: listener.address for listener in config.listeners},
            self._create_dispatch_function(router, services, gated),
            limits,
            services.outbox,
            connections_max=lambda: min(configs.broker_int("max.connections"), descriptors.connections),
            sasl_listeners=gated,
            address_limits=ConnectionLimits(configs, lambda: limiter.policy),
            tls_listeners=create_tls_listeners(config, limits),
            scheduler=services.scheduler,
        )
        return router, listener

    def _create_dispatch_function(self, router: Router, services: Services, gated: Sequence[str]) -> Dispatch:
        """Return the dispatch function of the listeners, with SASL authentication on listeners that require it."""
        if not gated:
            return router.dispatch
        from chronik.node.sasl_setup import create_sasl_gate

        gate = create_sasl_gate(services, router.dispatch, gated)
        assert services.authenticator is not None
        self._cleanup.append(_to_coroutine_function(services.authenticator.close))
        return gate.dispatch

    def _create_group_coordinator(
        self, node_mode: NodeMode, configs: ConfigResolver, coordinators: CoordinatorTerms
    ) -> GroupCoordinator:
        return GroupCoordinator(
            node_mode.store,
            self._clock,
            build_group_coordinator_config(configs),
            self._fail,
            coordinators.find_owned_term,
            Acks(self._config.offset_acks),
            is_fenced=lambda: node_mode.is_fenced,
        )

    def _create_transaction_components(
        self,
        node_mode: NodeMode,
        configs: ConfigResolver,
        replicas: ReplicaManager,
        coordinators: CoordinatorTerms,
        producer_ids: ProducerIdAllocator,
    ) -> TransactionComponents:
        parts = build_transaction_components(
            self._config.node_id,
            node_mode.store,
            replicas,
            self._clock,
            coordinators,
            build_transaction_coordinator_config(configs),
            producer_ids.allocate,
            node_mode.transaction_peers,
            is_fenced=lambda: node_mode.is_fenced,
            on_fatal=self._fail,
        )
        node_mode.serve_transactions(parts)
        return parts

    async def _open(self, parts: _NodeComponents) -> None:
        """Bind the ports and load the state from disk."""
        store, replicas = parts.services.store, parts.services.replicas
        self._cleanup.append(parts.listener.stop)
        parts.services.bound_addresses.update(await parts.listener.bind())
        await parts.node_mode.bind()
        self._cleanup.append(store.close)
        await store.start()
        self._cleanup.append(_to_coroutine_function(parts.synced_offsets.close))
        self._cleanup.append(_to_coroutine_function(parts.cache.close))
        store.subscribe(lambda delta: parts.services.encoded_topics.apply_delta(delta, store.image))
        if parts.services.authorizer is not None:
            store.subscribe(parts.services.authorizer.apply_delta)
        store.subscribe(parts.router.limiter.apply_delta)
        store.subscribe(replicas.apply_delta)
        store.subscribe(parts.changes.apply_delta)
        store.subscribe(parts.housekeeping.apply_delta)
        self._cleanup.append(_to_coroutine_function(replicas.close))
        self._cleanup.append(_to_coroutine_function(parts.flusher.close))
        self._cleanup.append(parts.flusher.drain)

    async def _join(self, parts: _NodeComponents) -> None:
        """Register the node's broker and start the background jobs."""
        replicas, node_mode = parts.services.replicas, parts.node_mode
        await node_mode.join(build_advertised_endpoints(self._config, parts.services.bound_addresses))
        for coordinator in (parts.services.groups, parts.services.transactions):
            await coordinator.start()
            self._cleanup.append(coordinator.close)
            parts.services.store.subscribe(coordinator.on_delta)
        if node_mode.is_up_to_date:
            replicas.start()
        jobs = [
            *parts.housekeeping.list_background_tasks(),
            *parts.listener.background_jobs(),
            *node_mode.background_jobs(replicas.start),
        ]
        if self._first_user is not None:
            add_user = partial(add_first_user, node_mode.store, self._first_user)
            await add_user() if node_mode.is_up_to_date else jobs.append(add_user)
        jobs.append(partial(self._monitor_health, parts))
        if self._config.peers or self._config.http is not None:
            jobs.append(partial(self._sample_history, parts))
        self._start_supervised_tasks(jobs)
        self._cleanup.append(self._save_history)
        self._cleanup.append(self._cancel_tasks)

    async def _monitor_health(self, parts: _NodeComponents) -> None:
        """Monitor the cluster's health, but not while the node starts: its start is more urgent."""
        await asyncio.sleep(HEALTH_START_SECONDS)
        await (await self._load_health_monitor(parts)).run()

    async def _load_health_monitor(self, parts: _NodeComponents) -> HealthMonitor:
        """Return the health monitor, which is imported on first use because nodes start faster without it."""
        if self._health_monitor is None:
            make = await asyncio.to_thread(_import_health_monitor)
            if self._health_monitor is None:  # another task may have created it in the meantime
                watchdog = self._get_status_source(parts).watchdog
                self._health_monitor = make(parts.services, parts.node_mode, parts.changes, watchdog)
        return self._health_monitor

    async def _sample_history(self, parts: _NodeComponents) -> None:
        """Sample the node's history, but not while the node starts."""
        await asyncio.sleep(HISTORY_START_SECONDS)
        await (await self._load_history(parts)).run()

    async def _load_history(self, parts: _NodeComponents) -> HistorySampler:
        """Return the history, which is imported on first use because nodes start faster without it."""
        async with self._loading_history:
            if self._history is None:
                source = self._get_status_source(parts)
                self._history = await asyncio.to_thread(_load_history_sampler, parts, source)
        return self._history

    async def _save_history(self) -> None:
        if self._history is not None:
            await self._history.save()

    async def _find_history(self, parts: _NodeComponents, query: HistoryQuery) -> HistoryAnswer:
        return (await self._load_history(parts)).store.answer(query)

    async def _answer_history_query(self, parts: _NodeComponents, payload: bytes) -> bytes:
        return (await self._load_history(parts)).answer_encoded(payload)

    async def _find_health(self, parts: _NodeComponents) -> HealthReport:
        return await (await self._load_health_monitor(parts)).current()

    async def _receive_health_report(self, parts: _NodeComponents, payload: bytes) -> bytes:
        return await (await self._load_health_monitor(parts)).receive_report(payload)

    def _create_node_mode(self, folder: DataDirectory) -> NodeMode:
        if not self._config.peers:
            return StandaloneMode(self._config, folder, self._clock, self._fail)
        # Imported on demand: Raft and its transport are a sixth of what a standalone node would load.
        from chronik.node.cluster_mode import ClusterMode

        return ClusterMode(self._config, folder, self._clock, self._fail)

    def _get_status_source(self, parts: _NodeComponents) -> NodeStatusSource:
        """Return the source of the node's status, which is created on first use because its import delays clients."""
        if self._node_status is None:
            from chronik.node.status import NodeStatusSource

            self._node_status = NodeStatusSource(
                parts.node_mode,
                parts.services,
                parts.router,
                parts.listener,
                parts.flusher.metrics,
                parts.changes,
                self._started_at,
            )
        return self._node_status

    def _get_http_server(self, parts: _NodeComponents) -> NodeHttpServer:
        """Return the HTTP server, which is created on first use, after the Kafka listeners accept requests."""
        if self._http_server is None:
            from chronik.node.http.server import NodeHttpServer

            self._http_server = NodeHttpServer(
                parts.services, parts.router, parts.node_mode, self._get_status_source(parts), parts.http_tls
            )
        return self._http_server

    async def _stop_client_listeners(self, listener: ClientListeners) -> None:
        """Stop the listeners after completing pending requests.

        In a cluster, the wait is limited to the rest of STOP_SECONDS: clients retry on another node, and a node without
        a quorum could not complete their requests.
        """
        seconds_left = max(self._stops_at - self._clock.monotonic(), RESPONSE_SECONDS_MIN)
        await listener.stop(seconds_left if self._config.peers else None)

    # Supervision

    def _start_supervised_tasks(self, jobs: list[Callable[[], Awaitable[None]]]) -> None:
        for job in jobs:
            task = asyncio.ensure_future(job())
            assert isinstance(task, asyncio.Task)
            task.add_done_callback(self._on_task_done)
            self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fail(self, error: BaseException) -> None:
        """Stop the node after a fatal error, because its memory may not match the data on disk."""
        if self._failure is None:
            self._failure = find_root_cause(error)
            logger.critical("node is stopping: %s", self._failure, exc_info=exc_info_if_unexpected(error))
            if self._stopped is not None:
                self._stopped.set()


def _import_health_monitor() -> type[HealthMonitor]:
    from chronik.node.health.monitor import HealthMonitor

    return HealthMonitor


def _load_history_sampler(parts: _NodeComponents, source: NodeStatusSource) -> HistorySampler:
    from chronik.node.history.file import HistoryFile
    from chronik.node.history.sampler import HistorySampler

    return HistorySampler(
        parts.services, parts.router.meters, source.node_stats, source.watchdog, HistoryFile(parts.files)
    )


async def _allocate_producer_ids(node_mode: NodeMode, node_id: int, count: int) -> int:
    result = await node_mode.store.propose(AllocateProducerIds(node_id, node_mode.broker_epoch, count))
    return result.value


def _to_coroutine_function(function: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        function()

    return call


def build_group_coordinator_config(configs: ConfigResolver) -> GroupConfig:
    """Return the settings of the group coordinator."""
    return GroupConfig.from_broker_configs(
        {
            name: configs.broker_value(name)
            for name in (
                "group.min.session.timeout.ms",
                "group.max.session.timeout.ms",
                "group.max.size",
                "group.initial.rebalance.delay.ms",
                "offset.metadata.max.bytes",
                "offsets.retention.minutes",
                "offsets.retention.check.interval.ms",
            )
        }
    )


def build_transaction_coordinator_config(configs: ConfigResolver) -> TransactionConfig:
    """Return the settings of the transaction coordinator."""
    return TransactionConfig(
        timeout_ms_max=configs.broker_int("transaction.max.timeout.ms"),
        expiration_ms=configs.broker_int("transactional.id.expiration.ms"),
        expiration_check_interval_ms=configs.broker_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )


def collect_static_configs(config: NodeConfig) -> dict[str, str]:
    """Return the static broker configs, including those that are separate config keys with non-default values."""
    own = {"default.replication.factor": config.replication_factor, "min.insync.replicas": config.min_insync_replicas}
    return {name: str(value) for name, value in own.items() if value != 1} | dict(config.broker)


def divide_node_descriptors(configs: ConfigResolver) -> DescriptorLimits:
    """Divide the process's file descriptors, and warn if fewer than `max.connections` remain for clients."""
    limit = raise_descriptor_limit()
    descriptors = divide_descriptors(limit)
    if descriptors.connections < configs.broker_int("max.connections"):
        message = "max.connections limited to %d: the process may open %d file descriptors; raise the limit (ulimit -n)"
        logger.warning(message, descriptors.connections, limit)
    return descriptors


def build_listener_limits(configs: ConfigResolver) -> ListenerLimits:
    """Return the limits of the client listeners."""
    return ListenerLimits(
        frame_bytes=configs.broker_int("socket.request.max.bytes"),
        idle_seconds=configs.broker_int("connections.max.idle.ms") / 1000,
    )
