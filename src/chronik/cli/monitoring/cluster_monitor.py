"""Periodic collection of a cluster's facts over Kafka's protocol and HTTP.

If a source does not answer, the reason is recorded and the other facts are still collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from chronik.cli.arguments import CLIENT_ID
from chronik.cli.monitoring.broker_requests import (
    RECOVERABLE_ERRORS,
    LagTracker,
    LogDirs,
    describe_log_dirs,
    fetch_end_offsets,
    list_groups,
)
from chronik.cli.monitoring.facts import (
    REBALANCING,
    ClusterFacts,
    GroupFacts,
    PartitionFacts,
    TransactionFacts,
    UncollectedFact,
)
from chronik.cli.monitoring.node_facts import SourceResponses, compare_node_states, merge_node_facts
from chronik.cli.monitoring.node_pages import HttpEndpoint, NodePages, fetch_all_pages
from chronik.client.access.settings import BootstrapAccess
from chronik.client.cluster import ClusterClient
from chronik.client.cluster_view import MIN_IN_SYNC_REPLICAS_KEY
from chronik.client.configs import TOPIC_RESOURCE, ConfigTarget, describe_configs
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ApiNotSupported, BrokerUnresponsive, ClientError
from chronik.client.nodes import (
    describe_cluster,
    describe_feature_levels,
    describe_health,
    describe_nodes,
    describe_quorum,
)
from chronik.client.partitions import list_reassignments
from chronik.client.records import TopicPartition
from chronik.client.transactions import describe_transaction, find_hanging_transactions, list_transactions
from chronik.config import Address
from chronik.metadata.names import SYSTEM_TOPICS
from chronik.protocol.messages.describe_cluster import DescribeClusterResponse
from chronik.protocol.messages.metadata import MetadataResponseTopic

T = TypeVar("T")

LAGS_BUDGET_S: Final = 1.0
TRANSACTIONS_DESCRIBED_MAX: Final = 50
"""Maximum number of transactions whose details are requested, each with a separate request."""

HANGING_AFTER_MS: Final = 15 * 60_000
"""Minimum age in milliseconds of a transaction that may be reported as hanging.

It is the same as in `chronik transactions find-hanging`.
"""

ONGOING: Final = "Ongoing"


class ClusterMonitor:
    """A collector of facts about a cluster's nodes, partitions, groups and transactions. Not thread-safe."""

    def __init__(
        self,
        access: BootstrapAccess,
        ports: Sequence[HttpEndpoint],
        *,
        timeout_s: float,
        find_hanging_transactions: bool,
    ) -> None:
        """Connect to the cluster.

        `find_hanging_transactions` enables a search for hanging transactions in all partitions.
        """
        self._cluster = ClusterClient(access, client_id=CLIENT_ID, timeout_s=timeout_s)
        self._access = access
        self._ports = ports
        self._timeout_s = timeout_s
        self._is_thorough = find_hanging_transactions
        self._lags = LagTracker(max(LAGS_BUDGET_S, timeout_s) if find_hanging_transactions else LAGS_BUDGET_S)
        self._rebalancing_since: dict[str, float] = {}
        self._unseen: dict[str, str] = {}
        self.pages: list[NodePages] = []
        """The nodes' `/status` and `/metrics` pages from the last collection of facts."""

    def __enter__(self) -> ClusterMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def collect(self) -> ClusterFacts:
        """Collect the facts of the cluster; raise ClientError if no broker and no HTTP port responds."""
        self._unseen = {}
        self._cluster.invalidate_metadata()
        self.pages, refused = fetch_all_pages(self._ports, self._timeout_s)
        for refusal in refused:
            self._unseen[f"/status and /metrics of {refusal.address}"] = refusal.why
        if not self._ports:
            self._unseen["/status and /metrics of the nodes"] = "no HTTP address given (--http HOST:PORT or --dir)"
        try:
            response = self._cluster.retry(lambda: describe_cluster(self._cluster.any_broker()))
        except RECOVERABLE_ERRORS as error:
            if not self.pages:
                raise
            self._record_failure("brokers", error)
            response = None
        return self._collect_facts(response)

    # Collectors

    def _collect_facts(self, response: DescribeClusterResponse | None) -> ClusterFacts:
        accounts = SourceResponses(cluster=response, pages=tuple(self.pages))
        topics: list[MetadataResponseTopic] = []
        level = None
        if response is not None:
            accounts, level = self._query_brokers(accounts, response)
            metadata = self._collect_or_record_failure(
                "topics", lambda: self._cluster.retry(lambda: self._cluster.metadata(None))
            )
            topics = metadata.topics if metadata is not None else []
            accounts = accounts._replace(folders=self._fetch_log_dirs(response, accounts))
        ends = self._fetch_end_offsets(topics)
        agreed = compare_node_states(self.pages)
        quorum = accounts.quorum
        return ClusterFacts(
            asked=self._access.servers,
            time_ms=time.time_ns() // 1_000_000,
            monotonic_s=time.monotonic(),
            cluster_id=response.cluster_id if response is not None else self.pages[0].status.get("cluster_id"),
            controller=response.controller_id if response is not None and response.controller_id >= 0 else None,
            term=quorum.leader_epoch if quorum is not None else None,
            level=level,
            note=response.error_message if response is not None else None,
            compared_nodes=agreed.nodes,
            compared_index=agreed.applied_index,
            same_state=agreed.is_same,
            nodes=tuple(merge_node_facts(accounts)),
            partitions=self._collect_partition_facts(topics, ends, accounts),
            groups=self._collect_group_facts(ends) if response is not None else (),
            transactions=self._collect_transaction_facts(topics) if response is not None else (),
            moving=self._list_reassigned_partitions() if response is not None else (),
            health=self._collect_or_record_failure("health", lambda: describe_health(self._cluster))
            if response is not None
            else None,
            unseen=tuple(UncollectedFact(what, why) for what, why in self._unseen.items()),
        )

    def _query_brokers(
        self, accounts: SourceResponses, response: DescribeClusterResponse
    ) -> tuple[SourceResponses, int | None]:
        cluster = self._cluster
        levels: dict[int, tuple[int, int]] = {}
        silent: dict[int, str] = {}
        unresponsive: set[int] = set()
        level: int | None = None
        for broker in response.brokers:
            try:
                found = self._fetch_feature_levels(Address(broker.host, broker.port))
                if found is not None:
                    levels[broker.broker_id] = found[:2]
                    level = max(level or 0, found[2])
            except ClientError as error:
                silent[broker.broker_id] = str(error)
                if isinstance(error, BrokerUnresponsive):
                    unresponsive.add(broker.broker_id)
        quorum = self._collect_or_record_failure("quorum", lambda: describe_quorum(cluster.controller()))
        nodes = self._collect_or_record_failure("drained nodes", lambda: describe_nodes(cluster))
        known = accounts._replace(
            quorum=quorum, nodes=nodes, levels=levels, silent=silent, unresponsive=frozenset(unresponsive)
        )
        return known, level

    def _fetch_feature_levels(self, address: Address) -> tuple[int, int, int] | None:
        security = self._access.security
        with BrokerConnection(address, client_id=CLIENT_ID, timeout_s=self._timeout_s, security=security) as broker:
            return describe_feature_levels(broker)

    def _fetch_log_dirs(self, response: DescribeClusterResponse, accounts: SourceResponses) -> dict[int, LogDirs]:
        found: dict[int, LogDirs] = {}
        for broker in response.brokers:
            node_id = broker.broker_id
            if node_id not in accounts.silent and not broker.is_fenced:
                folder = self._collect_or_record_failure(
                    f"log sizes of node {node_id}",
                    lambda node_id=node_id: describe_log_dirs(self._cluster.broker(node_id)),  # type: ignore[misc]
                )
                if folder is not None:
                    found[node_id] = folder
        return found

    def _fetch_end_offsets(self, topics: Sequence[MetadataResponseTopic]) -> dict[TopicPartition, int]:
        leaders: dict[int, list[TopicPartition]] = {}
        for topic in topics:
            if topic.name and topic.name not in SYSTEM_TOPICS:
                for each in topic.partitions:
                    if each.leader_id >= 0:
                        leaders.setdefault(each.leader_id, []).append(TopicPartition(topic.name, each.partition_index))
        return fetch_end_offsets(self._cluster, leaders, self._record_failure)

    def _collect_partition_facts(
        self, topics: Sequence[MetadataResponseTopic], ends: dict[TopicPartition, int], accounts: SourceResponses
    ) -> tuple[PartitionFacts, ...]:
        sizes: dict[TopicPartition, int] = {}
        for folder in accounts.folders.values():
            for at, size in folder.sizes.items():
                sizes[at] = max(size, sizes.get(at, 0))
        minima = self._fetch_min_in_sync_replicas(topics)
        return tuple(
            PartitionFacts(
                topic.name,
                each.partition_index,
                each.leader_id,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                minima.get(topic.name),
                bool(topic.is_internal) or topic.name in SYSTEM_TOPICS,
                ends.get(TopicPartition(topic.name, each.partition_index)),
                sizes.get(TopicPartition(topic.name, each.partition_index)),
            )
            for topic in sorted(topics, key=lambda topic: topic.name or "")
            if topic.name
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        )

    def _fetch_min_in_sync_replicas(self, topics: Sequence[MetadataResponseTopic]) -> dict[str, int]:
        """Return the config `min.insync.replicas` of each topic that has out-of-sync replicas."""
        short = [
            topic.name
            for topic in topics
            if topic.name and any(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)
        ]
        if not short:
            return {}
        resources = [ConfigTarget(TOPIC_RESOURCE, name) for name in short]
        found = self._collect_or_record_failure(
            MIN_IN_SYNC_REPLICAS_KEY,
            lambda: describe_configs(self._cluster, resources, [MIN_IN_SYNC_REPLICAS_KEY], skip_deleted=True),
        )
        return {
            resource.name: int(config.value)
            for resource, configs in (found or {}).items()
            for config in configs
            if config.value
        }

    def _collect_group_facts(self, ends: dict[TopicPartition, int]) -> tuple[GroupFacts, ...]:
        brokers = self._collect_or_record_failure("groups", self._cluster.brokers_by_id)
        if brokers is None:
            return ()
        listed = list_groups(brokers, self._record_failure)
        now = time.monotonic()
        since = {
            group.group_id: self._rebalancing_since.get(group.group_id, now)
            for group in listed
            if group.group_state in REBALANCING
        }
        self._rebalancing_since = since
        lags = self._lags.update(self._cluster, [group.group_id for group in listed], ends, self._record_failure)
        return tuple(
            GroupFacts(
                group.group_id,
                group.group_state,
                lags[group.group_id].records if group.group_id in lags else None,
                group.group_id in lags and lags[group.group_id].is_complete,
                now - since.get(group.group_id, now),
            )
            for group in listed
        )

    def _collect_transaction_facts(self, topics: Sequence[MetadataResponseTopic]) -> tuple[TransactionFacts, ...]:
        cluster, now_ms = self._cluster, time.time_ns() // 1_000_000
        listed = self._collect_or_record_failure("transactions", lambda: list_transactions(cluster)) or []
        found = []
        for each in [each for each in listed if each.transaction.transaction_state == ONGOING][
            :TRANSACTIONS_DESCRIBED_MAX
        ]:
            name = each.transaction.transactional_id
            response = self._collect_or_record_failure(
                f"transaction {name}", partial(describe_transaction, cluster, name)
            )
            if response is not None and response.transaction.transaction_start_time_ms > 0:
                age_s = (now_ms - response.transaction.transaction_start_time_ms) / 1000
                timeout_s = response.transaction.transaction_timeout_ms / 1000
                partitions = tuple(map(str, response.partitions))
                found.append(
                    TransactionFacts(name, response.transaction.transaction_state, age_s, timeout_s, False, partitions)
                )
        return (*found, *self._collect_hanging_transaction_facts(topics)) if self._is_thorough else tuple(found)

    def _collect_hanging_transaction_facts(self, topics: Sequence[MetadataResponseTopic]) -> list[TransactionFacts]:
        now_ms = time.time_ns() // 1_000_000
        partitions = [
            TopicPartition(topic.name, each.partition_index)
            for topic in topics
            if topic.name and topic.name not in SYSTEM_TOPICS
            for each in topic.partitions
            if each.leader_id >= 0
        ]
        hanging = self._collect_or_record_failure(
            "hanging transactions", lambda: find_hanging_transactions(self._cluster, partitions, HANGING_AFTER_MS)
        )
        return [
            TransactionFacts(
                f"producer {each.producer.producer_id}",
                "hanging",
                (now_ms - each.producer.last_timestamp) / 1000,
                None,
                True,
                (str(each.partition),),
                each.producer.current_txn_start_offset,
            )
            for each in hanging or ()
        ]

    def _list_reassigned_partitions(self) -> tuple[str, ...]:
        moves = self._collect_or_record_failure("partition reassignments", lambda: list_reassignments(self._cluster))
        return tuple(str(move.partition) for move in moves or ())

    # Errors

    def _collect_or_record_failure(self, what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ApiNotSupported:
            return None  # an older version, or another broker than Chronik
        except RECOVERABLE_ERRORS as error:
            self._record_failure(what, error)
            return None

    def _record_failure(self, what: str, error: Exception) -> None:
        self._unseen[what] = " ".join(str(error).split())
