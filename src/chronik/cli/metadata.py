"""`chronik metadata`: print the Metadata response of one broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from chronik.cli.arguments import CLIENT_ID, add_client_arguments, add_json_argument, load_security
from chronik.cli.output import format_ranges, format_table, join_ids, message_to_json, print_json
from chronik.client.cluster import parse_bootstrap, raise_for_code
from chronik.client.connection import BrokerConnection
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser, run)
    add_json_argument(parser, "print the broker's whole Metadata response, in a stable order")


def run(arguments: argparse.Namespace) -> int:
    address = parse_bootstrap(arguments.bootstrap_server)[0]
    with BrokerConnection(
        address, client_id=CLIENT_ID, timeout_s=arguments.timeout, security=load_security(arguments)
    ) as connection:
        response = connection.request(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
        raise_for_code(response.error_code, "metadata")
        _sort_metadata_response(response)
        if arguments.json:
            print_json(message_to_json(response, connection.negotiated_version(MetadataRequest)))
        else:
            print(_format_metadata(response))
    return 0


def _sort_metadata_response(response: MetadataResponse) -> None:
    """Sort a Metadata response by ids and names, so that equal metadata is printed identically.

    The order of replicas is preserved.
    """
    response.brokers.sort(key=lambda broker: broker.node_id)
    response.topics.sort(key=lambda topic: topic.name or "")
    for topic in response.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)


def _format_metadata(response: MetadataResponse) -> str:
    brokers = (
        (
            broker.node_id,
            f"{broker.host}:{broker.port}",
            broker.rack,
            _format_flag(broker.node_id == response.controller_id),
        )
        for broker in response.brokers
    )
    topics = [row for topic in response.topics for row in iter_partition_rows(topic)]
    return "\n".join(
        [
            f"Brokers: {join_ids(broker.node_id for broker in response.brokers)}",
            f"Cluster id: {response.cluster_id}",
            f"Topics: {len(response.topics)}",
            "",
            format_table(("BROKER", "ADDRESS", "RACK", "CONTROLLER"), brokers),
            *(["", format_table(("TOPIC", "PARTITIONS", "LEADER", "REPLICAS", "ISR"), topics)] if topics else []),
        ]
    )


def iter_partition_rows(topic: MetadataResponseTopic) -> Iterable[tuple[str | None, str, int, str, str]]:
    """Yield one table row per set of partitions with the same leader, replicas and ISR."""
    groups: dict[tuple[int, str, str], list[MetadataResponsePartition]] = {}
    for partition in topic.partitions:
        placement = (partition.leader_id, join_ids(partition.replica_nodes), join_ids(partition.isr_nodes))
        groups.setdefault(placement, []).append(partition)
    for placement, partitions in groups.items():
        yield topic.name, format_ranges([partition.partition_index for partition in partitions]), *placement


def _format_flag(condition: bool) -> str:
    return "yes" if condition else ""
