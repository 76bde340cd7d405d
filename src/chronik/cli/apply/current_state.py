"""The current state of a cluster, as far as a file describes it or completely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chronik.cli.apply.cluster_spec import (
    INTERNAL_PREFIX,
    TRANSIENT_CONFIGS,
    ClusterSpec,
    ConfigValues,
    QuotaEntityKey,
    TopicSpec,
    UserSpec,
)
from chronik.cli.arguments import InvalidInput
from chronik.client.admin import list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.configs import (
    BROKER_RESOURCE,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    TOPIC_RESOURCE,
    ConfigTarget,
    describe_configs,
)
from chronik.client.partitions import list_reassignments
from chronik.client.records import TopicPartition
from chronik.client.security import AclBinding, AclFilter, describe_quotas, list_acls, list_users
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_configs import DescribeConfigsResourceResult
from chronik.protocol.messages.metadata import MetadataResponseTopic


def fetch_state_for_spec(cluster: ClusterClient, wanted: ClusterSpec) -> ClusterSpec:
    """Request the current state of those parts of the cluster that the spec file describes.

    No permissions for other parts are needed.

    Raises:
        InvalidInput: The file has ACLs, but the cluster has no authorizer.
    """
    return ClusterSpec(
        topics=None if wanted.topics is None else _fetch_topics(cluster, wanted.topics),
        broker=None if wanted.broker is None else _fetch_broker_configs(cluster),
        users=None if wanted.users is None else _fetch_users(cluster),
        acls=None if wanted.acls is None else _fetch_acls(cluster, wanted.acls),
        quotas=None if wanted.quotas is None else _fetch_quotas(cluster),
    )


def fetch_complete_cluster_state(cluster: ClusterClient) -> ClusterSpec:
    """Request the cluster's topics, configs, users, ACLs and quotas.

    ACLs are None if the cluster has no authorizer.
    """
    return ClusterSpec(
        _fetch_topics(cluster, None),
        _fetch_broker_configs(cluster),
        _fetch_users(cluster),
        _acls(cluster),
        _fetch_quotas(cluster),
    )


def _fetch_topics(cluster: ClusterClient, wanted: Mapping[str, TopicSpec] | None) -> dict[str, TopicSpec]:
    """Return the cluster's topics with their configs.

    Configs are included for the topics in `wanted`, or for all topics if it is None.
    """
    topics = {topic.name: topic for topic in list_topics(cluster) if topic.name and not _is_internal_topic(topic)}
    resources = [ConfigTarget(TOPIC_RESOURCE, name) for name in topics if wanted is None or name in wanted]
    configs = describe_configs(cluster, resources, skip_deleted=True) if resources else {}
    deleted = {each.name for each in resources if each not in configs}
    topics = {name: topic for name, topic in topics.items() if name not in deleted}
    factors = _fetch_replication_factors(cluster, topics, wanted)
    return {
        name: TopicSpec(
            len(topic.partitions),
            factors[name],
            _select_configs_by_source(configs.get(ConfigTarget(TOPIC_RESOURCE, name), ()), DYNAMIC_TOPIC_CONFIG),
        )
        for name, topic in topics.items()
    }


def _is_internal_topic(topic: MetadataResponseTopic) -> bool:
    return topic.is_internal or (topic.name or "").startswith(INTERNAL_PREFIX)


def _fetch_replication_factors(
    cluster: ClusterClient, topics: Mapping[str, MetadataResponseTopic], wanted: Mapping[str, TopicSpec] | None
) -> dict[str, int]:
    """Return the topics' replication factors, not counting replicas that reassignments are removing.

    Listing reassignments needs a permission of its own, so they are requested only if a replication factor differs.
    """
    found = {name: _compute_replication_factor(topic, {}) for name, topic in topics.items()}
    if wanted is not None and all(
        topic.replication_factor in (None, found.get(name, topic.replication_factor)) for name, topic in wanted.items()
    ):
        return found
    leaving = {move.partition: move.removing for move in list_reassignments(cluster)}
    return {name: _compute_replication_factor(topic, leaving) for name, topic in topics.items()}


def _compute_replication_factor(topic: MetadataResponseTopic, leaving: Mapping[TopicPartition, Sequence[int]]) -> int:
    counts = [0]
    for each in topic.partitions:
        removed = leaving.get(TopicPartition(topic.name or "", each.partition_index), ())
        counts.append(sum(replica not in removed for replica in each.replica_nodes))
    return max(counts)


def _fetch_broker_configs(cluster: ClusterClient) -> ConfigValues:
    resource = ConfigTarget(BROKER_RESOURCE, "")
    return _select_configs_by_source(describe_configs(cluster, [resource])[resource], DYNAMIC_DEFAULT_BROKER_CONFIG)


def _select_configs_by_source(configs: Iterable[DescribeConfigsResourceResult], source: int) -> dict[str, str]:
    """Return the values of the configs that have the given source.

    Omit sensitive configs, because brokers do not return their values.
    """
    return {
        config.name: config.value
        for config in configs
        if config.config_source == source and config.value is not None and config.name not in TRANSIENT_CONFIGS
    }


def _fetch_users(cluster: ClusterClient) -> dict[str, UserSpec]:
    return {name: UserSpec({**mechanisms}) for name, mechanisms in list_users(cluster).items()}


def _acls(cluster: ClusterClient) -> frozenset[AclBinding] | None:
    try:
        return frozenset(list_acls(cluster, AclFilter()))
    except KafkaError as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return None
        raise


def _fetch_acls(cluster: ClusterClient, wanted: frozenset[AclBinding]) -> frozenset[AclBinding]:
    found = _acls(cluster)
    if found is None and wanted:
        raise InvalidInput("the file has ACLs, but the cluster has no authorizer: set authorizer.class.name first")
    return found or frozenset()


def _fetch_quotas(cluster: ClusterClient) -> dict[QuotaEntityKey, dict[str, float]]:
    return {tuple(sorted(entity.items())): quotas for entity, quotas in describe_quotas(cluster, {})}
