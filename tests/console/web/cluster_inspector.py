"""The state of the cluster as Kafka clients see it, to verify what was done in the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from chronik.client.access.settings import parse_security
from chronik.client.admin import list_topics
from chronik.client.cluster import list_broker_ids
from chronik.client.cluster_view import describe_partitions
from chronik.client.configs import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigTarget, describe_configs
from chronik.client.connection import BrokerConnection
from chronik.client.errors import LoginFailed
from chronik.client.groups import list_committed_offsets, list_groups
from chronik.client.nodes import describe_nodes
from chronik.client.partitions import list_reassignments
from chronik.client.security import AclBinding, AclFilter, describe_quotas, list_acls, list_users
from chronik.client.transactions import describe_transaction
from chronik.formats.registry_client import RegistryClient, RegistrySettings
from chronik.protocol.messages.describe_nodes import DescribedNode
from tests.console.web.secured_cluster import ADMIN, SecuredCluster

REQUEST_SECONDS_MAX = 60.0


class ClusterInspector:
    """Reads the state of the cluster. Nothing is cached."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self.cluster = cluster
        self._client = cluster.client()

    def close(self) -> None:
        self._client.close()

    def wait_for(self, what: str, read: Callable[[], Any], expected: Any) -> None:
        """Wait until a value is as expected: changes reach the other nodes with a delay."""

        def missing() -> str | None:
            found = read()
            return None if found == expected else f"it is {found!r}"

        self.cluster.wait_until(missing, f"{what}: {expected!r}")

    # Topics

    def partitions(self, topic: str) -> list[list[int]]:
        """Return the replicas of each partition; an empty list if the topic does not exist."""
        found = [each for each in list_topics(self._client) if each.name == topic]
        partitions = sorted(
            (each for topic in found for each in topic.partitions), key=lambda each: each.partition_index
        )
        return [each.replica_nodes for each in partitions]

    def reassignments(self) -> list[tuple[str, list[int]]]:
        """Return the partitions that are being reassigned, each with the replicas being added."""
        return [(str(each.partition), list(each.adding)) for each in list_reassignments(self._client)]

    def config(self, key: str, *, topic: str | None = None, node: int | None = None) -> str | None:
        """Return the config of a topic, of a node, or the cluster-wide config if neither is given."""
        named = "" if node is None else str(node)
        resource = ConfigTarget(BROKER_RESOURCE, named) if topic is None else ConfigTarget(TOPIC_RESOURCE, topic)
        (found,) = describe_configs(self._client, [resource], [key]).values()
        return found[0].value if found else None

    # Records

    def record(self, topic: str, partition: int, offset: int) -> Message:
        consumer = Consumer(self.cluster.settings() | {"group.id": "inspector", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            message = consumer.poll(REQUEST_SECONDS_MAX)
            assert message is not None
            assert message.error() is None, message.error()
            return message
        finally:
            consumer.close()

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the start and end offset of a partition."""
        consumer = Consumer(self.cluster.settings() | {"group.id": "inspector"})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_SECONDS_MAX)
            return low, high
        finally:
            consumer.close()

    # Schemas

    @contextmanager
    def registry(self) -> Iterator[RegistryClient]:
        """Return a client of the schema registry with the permissions of the super user."""
        login = f"{ADMIN}:{self.cluster.passwords[ADMIN]}"
        client = RegistryClient(RegistrySettings(f"{self.cluster.console_url(1)}/registry", login=login))
        try:
            yield client
        finally:
            client.close()

    # Groups and transactions

    def committed(self, group: str) -> dict[int, int]:
        """Return the committed offsets by partition of a group that reads a single topic."""
        found = list_committed_offsets(self._client, group)
        return {partition.partition: each.offset for partition, each in sorted(found.items())}

    def groups(self) -> set[str]:
        return {each.group_id for each in list_groups(self._client)}

    def transaction(self, transactional_id: str) -> str:
        return describe_transaction(self._client, transactional_id).transaction.transaction_state

    # Nodes

    def node(self, node_id: int) -> DescribedNode | None:
        return next((each for each in describe_nodes(self._client).nodes if each.node_id == node_id), None)

    def is_voter(self, node_id: int) -> bool | None:
        node = self.node(node_id)
        return None if node is None else node.is_voter

    def status(self, node_id: int) -> str | None:
        node = self.node(node_id)
        return None if node is None else node.status

    def leader_count(self, node_id: int) -> int:
        return sum(
            each.leader == node_id and not each.is_system_partition for each in describe_partitions(self._client)
        )

    # Security

    def mechanisms(self, user: str) -> list[str]:
        return sorted(list_users(self._client, [user]).get(user, ()))

    def acls(self, principal: str) -> list[AclBinding]:
        return list_acls(self._client, AclFilter(principal=principal))

    def quotas(self, user: str) -> dict[str, float]:
        return next((values for _, values in describe_quotas(self._client, {"user": user})), {})

    def can_log_in(self, user: str, password: str) -> bool:
        settings = self.cluster.settings() | {"sasl.username": user, "sasl.password": password}
        security = parse_security(settings)
        try:
            with BrokerConnection(
                self.cluster[1].kafka, client_id="test", timeout_s=REQUEST_SECONDS_MAX, security=security
            ) as connection:
                return bool(list_broker_ids(connection))
        except LoginFailed:
            return False
