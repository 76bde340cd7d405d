"""Admin commands with kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition, errors
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import BrokerResponseError, for_code

from .command_loop import CommandRejected

KAFKA_NAMES = {"INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION"}  # errors for which kafka-python has its own names
OFFSET_SPECS = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST, "max_timestamp": OffsetSpec.MAX_TIMESTAMP}


class Admin:
    def __init__(self, api_version: tuple[int, ...] | None) -> None:
        self._api_version = api_version

    def create_topics(self, bootstrap: str, topics: dict[str, dict[str, Any]], validate_only: bool = False) -> None:
        wanted = {
            name: {
                "num_partitions": topic.get("partitions", -1),
                "replication_factor": topic.get("replication_factor", -1),
                "assignments": {int(partition): ids for partition, ids in topic.get("assignments", {}).items()},
                "configs": topic.get("configs", {}),
            }
            for name, topic in topics.items()
        }
        with self._client(bootstrap) as client:
            client.create_topics(wanted, validate_only=validate_only)

    def create_topics_by_threads(
        self, bootstrap: str, topics: list[str], threads: int, partitions: int, replication_factor: int
    ) -> None:
        """Create one topic per request, from `threads` threads with an admin client each."""
        wanted = {"num_partitions": partitions, "replication_factor": replication_factor}

        def create(names: list[str]) -> None:
            with self._client(bootstrap) as client:
                for name in names:
                    client.create_topics({name: wanted})

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(create, [topics[first::threads] for first in range(threads)]))

    def list_topics(self, bootstrap: str) -> list[str]:
        with self._client(bootstrap) as client:
            return sorted(client.list_topics())

    def describe_topics(self, bootstrap: str, topics: list[str]) -> dict[str, Any]:
        with self._client(bootstrap) as client:
            described = client.describe_topics(topics)
        for topic in described:
            _raise_for(topic["error_code"], topic["name"])
        return {
            topic["name"]: [
                {
                    "partition": partition["partition_index"],
                    "leader": partition["leader_id"],
                    "replicas": partition["replica_nodes"],
                    "isr": partition["isr_nodes"],
                }
                for partition in sorted(topic["partitions"], key=lambda partition: partition["partition_index"])
            ]
            for topic in described
        }

    def describe_topic_partitions(self, bootstrap: str, topic: str) -> list[int]:
        """Use the DescribeTopicPartitions API with two partitions per page, to test its cursor."""
        partitions: list[int] = []
        cursor = None
        with self._client(bootstrap) as client:
            while True:
                page = client.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
                for described in page["topics"]:
                    _raise_for(described["error_code"], topic)
                    partitions += [partition["partition_index"] for partition in described["partitions"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    return partitions

    def create_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        with self._client(bootstrap) as client:
            client.create_partitions({topic: total})

    def delete_topics(self, bootstrap: str, topics: list[str]) -> None:
        with self._client(bootstrap) as client:
            client.delete_topics(topics)

    def alter_configs_incrementally(
        self, bootstrap: str, kind: str, name: str, changes: list[tuple[str, str, str | None]]
    ) -> None:
        wanted = {key: (operation.upper(), value) for key, operation, value in changes}
        self._alter(bootstrap, ConfigResource(kind.upper(), name, wanted), incremental=True)

    def alter_configs_whole(self, bootstrap: str, kind: str, name: str, configs: dict[str, str]) -> None:
        self._alter(bootstrap, ConfigResource(kind.upper(), name, configs), incremental=False)

    def describe_configs(self, bootstrap: str, kind: str, name: str) -> dict[str, Any]:
        with self._client(bootstrap) as client:
            described = client.describe_configs(
                [ConfigResource(kind.upper(), name)], include_synonyms=True, config_filter="all"
            )
        return {
            key: {
                "value": config["value"],
                "source": config["config_source"],
                "read_only": config["read_only"],
                "sensitive": config["is_sensitive"],
                "synonyms": [[each["name"], each["value"], each["source"]] for each in config["synonyms"]],
            }
            for key, config in described[kind][name].items()
        }

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> int:
        with self._client(bootstrap) as client:
            deleted = client.delete_records({TopicPartition(topic, partition): before})
            return int(deleted[TopicPartition(topic, partition)]["low_watermark"])

    def list_offsets(self, bootstrap: str, topic: str, partition: int, spec: str | int) -> dict[str, int]:
        wanted = spec if isinstance(spec, int) else OFFSET_SPECS[spec]
        with self._client(bootstrap) as client:
            found = client.list_partition_offsets({TopicPartition(topic, partition): wanted})
        result = found[TopicPartition(topic, partition)]
        return {"offset": result.offset, "timestamp_ms": result.timestamp}

    def describe_cluster(self, bootstrap: str) -> dict[str, Any]:
        with self._client(bootstrap) as client:
            described = client.describe_cluster()
        return {
            "cluster_id": described["cluster_id"],
            "controller": described["controller_id"],
            "nodes": [{"id": b["broker_id"], "host": b["host"], "port": b["port"]} for b in described["brokers"]],
        }

    def describe_log_dirs(self, bootstrap: str, topic: str) -> list[tuple[int, int]]:
        with self._client(bootstrap) as client:
            described = client.describe_log_dirs([topic])
        return sorted(
            (partition["partition_index"], partition["partition_size"])
            for broker in described
            for log_dir in broker["log_dirs"]
            for found in log_dir["topics"]
            if found["name"] == topic
            for partition in found["partitions"]
        )

    def list_groups(self, bootstrap: str) -> dict[str, str]:
        with self._client(bootstrap) as client:
            return {group["group_id"]: group["group_state"] for group in client.list_groups()}

    def describe_group(self, bootstrap: str, group: str) -> dict[str, Any]:
        with self._client(bootstrap) as client:
            described = client.describe_groups([group])[group]
        return {
            "state": described["group_state"],
            "protocol": described["protocol_data"],
            "members": [
                {"client_id": member["client_id"], "assignment": _parse_assignment(member["member_assignment"])}
                for member in described["members"]
            ],
        }

    def group_offsets(self, bootstrap: str, group: str) -> list[tuple[str, int, int, str]]:
        with self._client(bootstrap) as client:
            offsets = client.list_group_offsets(group)[group]
        return sorted((at.topic, at.partition, found.offset, found.metadata) for at, found in offsets.items())

    def alter_group_offsets(self, bootstrap: str, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        wanted = {TopicPartition(t, p): OffsetAndMetadata(offset, text, -1) for t, p, offset, text in offsets}
        with self._client(bootstrap) as client:
            client.alter_group_offsets(group, wanted)

    def delete_group(self, bootstrap: str, group: str) -> None:
        with self._client(bootstrap) as client:
            outcome = client.delete_groups([group])[group]
        if outcome != "OK":
            raise CommandRejected(_kafka_error_name(getattr(errors, outcome)), group)

    def _alter(self, bootstrap: str, resource: Any, incremental: bool) -> None:
        with self._client(bootstrap) as client:
            # raise_on_unknown=False: an unknown key must be rejected by the broker, not by the client
            results = client.alter_configs([resource], raise_on_unknown=False, incremental=incremental)
        outcome = results[resource.resource_type.name.lower()][resource.name]
        if outcome != "OK":  # "[Error 40] InvalidConfigurationError: message of the broker"
            _raise_for(int(outcome.removeprefix("[Error ").partition("]")[0]), outcome)

    @contextmanager
    def _client(self, bootstrap: str) -> Iterator[Any]:
        client = KafkaAdminClient(bootstrap_servers=bootstrap, api_version=self._api_version)
        try:
            yield client
        except BrokerResponseError as error:
            raise CommandRejected(_kafka_error_name(type(error)), str(error)) from error
        finally:
            client.close()


def _raise_for(code: int, subject: str) -> None:
    if code != 0:
        raise CommandRejected(_kafka_error_name(for_code(code)), subject)


def _kafka_error_name(error: Any) -> str:
    name: str = error.message
    return KAFKA_NAMES.get(name, name)


def _parse_assignment(assignment: Any) -> list[tuple[str, int]]:
    if not assignment:
        return []
    return [(topic["topic"], p) for topic in assignment["assigned_partitions"] for p in topic["partitions"]]
