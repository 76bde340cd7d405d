"""Admin commands with confluent-kafka's AdminClient."""

from __future__ import annotations

from concurrent.futures import Future
from functools import cache
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .command_loop import CommandRejected

REQUEST_TIMEOUT_S = 30
# Errors for which librdkafka has its own names.
KAFKA_NAMES = {
    "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
    "TOPIC_EXCEPTION": "INVALID_TOPIC_EXCEPTION",
    "_INVALID_ARG": "INVALID_PARTITIONS",  # librdkafka rejects a topic without partitions itself
}
OFFSET_SPECS = {
    "earliest": OffsetSpec.earliest,
    "latest": OffsetSpec.latest,
    "max_timestamp": OffsetSpec.max_timestamp,
}


class Admin:
    def create_topics(self, bootstrap: str, topics: dict[str, dict[str, Any]], validate_only: bool = False) -> None:
        wanted = [_new_topic(name, topic) for name, topic in topics.items()]
        _results_of(_client(bootstrap).create_topics(wanted, validate_only=validate_only))

    def list_topics(self, bootstrap: str) -> list[str]:
        return sorted(_client(bootstrap).list_topics(timeout=REQUEST_TIMEOUT_S).topics)

    def describe_topics(self, bootstrap: str, topics: list[str]) -> dict[str, Any]:
        described = _results_of(_client(bootstrap).describe_topics(TopicCollection(topics)))
        return {
            name: [
                {
                    "partition": partition.id,
                    "leader": partition.leader.id,
                    "replicas": [node.id for node in partition.replicas],
                    "isr": [node.id for node in partition.isr],
                }
                for partition in topic.partitions
            ]
            for name, topic in described.items()
        }

    def create_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        _results_of(_client(bootstrap).create_partitions([NewPartitions(topic, total)]))

    def delete_topics(self, bootstrap: str, topics: list[str]) -> None:
        _results_of(_client(bootstrap).delete_topics(topics))

    def alter_configs_incrementally(
        self, bootstrap: str, kind: str, name: str, changes: list[tuple[str, str, str | None]]
    ) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType[operation.upper()])
            for key, operation, value in changes
        ]
        resource = ConfigResource(_resource_type(kind), name, incremental_configs=entries)
        _results_of(_client(bootstrap).incremental_alter_configs([resource]))

    def alter_configs_whole(self, bootstrap: str, kind: str, name: str, configs: dict[str, str]) -> None:
        _results_of(_client(bootstrap).alter_configs([ConfigResource(_resource_type(kind), name, set_config=configs)]))

    def describe_configs(self, bootstrap: str, kind: str, name: str) -> dict[str, Any]:
        resource = ConfigResource(_resource_type(kind), name)
        described = _results_of(_client(bootstrap).describe_configs([resource]))[resource]
        return {
            key: {
                "value": config.value,
                "source": ConfigSource(config.source).name,
                "read_only": bool(config.is_read_only),
                "sensitive": bool(config.is_sensitive),
                "synonyms": [[each.name, each.value, ConfigSource(each.source).name] for each in _synonyms(config)],
            }
            for key, config in described.items()
        }

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> int:
        at = TopicPartition(topic, partition, before)
        return int(_results_of(_client(bootstrap).delete_records([at]))[at].low_watermark)

    def list_offsets(
        self, bootstrap: str, topic: str, partition: int, spec: str | int, isolation: str = "read_uncommitted"
    ) -> dict[str, int]:
        at = TopicPartition(topic, partition)
        wanted = OffsetSpec.for_timestamp(spec) if isinstance(spec, int) else OFFSET_SPECS[spec]()
        level = IsolationLevel[isolation.upper()]
        found = _results_of(_client(bootstrap).list_offsets({at: wanted}, isolation_level=level))[at]
        return {"offset": found.offset, "timestamp_ms": found.timestamp}

    def describe_cluster(self, bootstrap: str) -> dict[str, Any]:
        described = _result_of(_client(bootstrap).describe_cluster())
        return {
            "cluster_id": described.cluster_id,
            "controller": described.controller.id,
            "nodes": [{"id": node.id, "host": node.host, "port": node.port} for node in described.nodes],
        }

    def list_groups(self, bootstrap: str) -> dict[str, str]:
        listed = _result_of(_client(bootstrap).list_consumer_groups())
        if listed.errors:
            raise listed.errors[0]
        return {group.group_id: _state(group.state) for group in listed.valid}

    def describe_group(self, bootstrap: str, group: str) -> dict[str, Any]:
        described = _results_of(_client(bootstrap).describe_consumer_groups([group]))[group]
        return {
            "state": _state(described.state),
            "protocol": described.partition_assignor,
            "members": [
                {
                    "client_id": member.client_id,
                    "assignment": [(at.topic, at.partition) for at in member.assignment.topic_partitions],
                }
                for member in described.members
            ],
        }

    def group_offsets(self, bootstrap: str, group: str) -> list[tuple[str, int, int, None]]:
        """Return offsets without metadata, which this binding reads incorrectly (it relies on a terminating zero)."""
        listed = _results_of(_client(bootstrap).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return sorted((at.topic, at.partition, at.offset, None) for at in listed[group].topic_partitions)

    def alter_group_offsets(self, bootstrap: str, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        wanted = [TopicPartition(topic, partition, offset, text) for topic, partition, offset, text in offsets]
        _results_of(_client(bootstrap).alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))

    def delete_group(self, bootstrap: str, group: str) -> None:
        _results_of(_client(bootstrap).delete_consumer_groups([group]))


@cache  # a client without references is destroyed together with its pending requests
def _client(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap})


def _result_of(future: Future[Any]) -> Any:
    try:
        return future.result(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as failure:
        error = failure.args[0]
        raise CommandRejected(KAFKA_NAMES.get(error.name(), error.name()), error.str()) from failure


def _results_of(futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
    return {subject: _result_of(future) for subject, future in futures.items()}


def _new_topic(name: str, topic: dict[str, Any]) -> Any:
    options: dict[str, Any] = {"config": topic.get("configs", {})}
    if "assignments" in topic:
        options["replica_assignment"] = [topic["assignments"][key] for key in sorted(topic["assignments"], key=int)]
        options["num_partitions"] = len(topic["assignments"])
    else:
        options["num_partitions"] = topic.get("partitions", -1)
        options["replication_factor"] = topic.get("replication_factor", -1)
    return NewTopic(name, **options)


def _resource_type(kind: str) -> Any:
    return {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}[kind]


def _synonyms(config: Any) -> list[Any]:
    return list(config.synonyms.values())


def _state(state: Any) -> str:
    """Convert a state such as PREPARING_REBALANCING to the protocol's spelling."""
    return "".join(word.capitalize() for word in state.name.split("_"))
