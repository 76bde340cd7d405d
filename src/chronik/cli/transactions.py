"""`chronik transactions`: list and describe transactions, and find and abort hanging ones (kafka-transactions.sh)."""

from __future__ import annotations

import argparse
import time
from typing import Any

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_json_argument,
    connect_cluster,
    parse_positive_int,
)
from chronik.cli.output import format_table, print_json
from chronik.client.admin import list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.records import TopicPartition
from chronik.client.transactions import (
    ANY_AGE,
    DescribedTransactionState,
    OpenTransaction,
    abort_transaction,
    describe_transaction,
    find_hanging_transactions,
    list_open_transactions,
    list_transactions,
)

MINUTE_MS = 60_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list transactional ids and the states of their transactions")
    listing.add_argument(
        "--duration-filter",
        type=int,
        default=ANY_AGE,
        metavar="MS",
        help="list only transactions that have been running for longer than MS milliseconds",
    )
    listing.add_argument(
        "--transactional-id-pattern", metavar="REGEX", help="list only transactional ids that fully match REGEX"
    )
    add_json_argument(listing)
    add_client_arguments(listing, run_list)
    describe = actions.add_parser("describe", help="show the producer, state and partitions of transactional ids")
    describe.add_argument("names", nargs="+", metavar="ID", help="transactional id; several are possible")
    add_json_argument(describe)
    add_client_arguments(describe, run_describe)
    _add_abort_arguments(actions.add_parser("abort", help="abort a hanging transaction in one partition"))
    _add_find_arguments(actions.add_parser("find-hanging", help="find transactions without a coordinator"))


def _add_abort_arguments(abort: argparse.ArgumentParser) -> None:
    abort.add_argument("--topic", required=True, metavar="TOPIC", help="topic of the transaction")
    abort.add_argument("--partition", type=int, required=True, metavar="N", help="partition of --topic")
    abort.add_argument(
        "--start-offset", type=int, metavar="N", help="first offset of the transaction, as printed by find-hanging"
    )
    for name in ("producer-id", "producer-epoch", "coordinator-epoch"):
        abort.add_argument(f"--{name}", type=int, metavar="N", help="alternative to --start-offset; requires all three")
    add_client_arguments(abort, run_abort)


def _add_find_arguments(find: argparse.ArgumentParser) -> None:
    find.add_argument("--broker-id", type=int, metavar="ID", help="search only the replicas of this broker")
    find.add_argument("--topic", help="search only this topic")
    find.add_argument("--partition", type=int, metavar="N", help="search only this partition of --topic")
    find.add_argument(
        "--max-transaction-timeout",
        type=parse_positive_int,
        default=15,
        metavar="MINUTES",
        help="age at which a transaction counts as hanging (default: %(default)d)",
    )
    add_json_argument(find)
    add_client_arguments(find, run_find_hanging)


def run_list(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        found = list_transactions(
            cluster, older_than_ms=arguments.duration_filter, pattern=arguments.transactional_id_pattern
        )
    rows = [
        {
            "transactional_id": each.transaction.transactional_id,
            "coordinator": each.coordinator,
            "producer_id": each.transaction.producer_id,
            "transaction_state": each.transaction.transaction_state,
        }
        for each in found
    ]
    _print_rows(arguments, rows, "transactional_id", "coordinator", "producer_id", "transaction_state")
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        rows = [_transaction_to_json(describe_transaction(cluster, name)) for name in arguments.names]
    if arguments.json:
        print_json(rows)
        return 0
    for row in rows:
        row["topic_partitions"] = ",".join(f"{topic}-{index}" for topic, index in row["topic_partitions"])
    print(_format_columns(rows, *rows[0]))
    return 0


def _transaction_to_json(described: DescribedTransactionState) -> dict[str, Any]:
    coordinator, transaction = described
    started_ms = transaction.transaction_start_time_ms if transaction.transaction_start_time_ms >= 0 else None
    return {
        "coordinator_id": coordinator,
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_state": transaction.transaction_state,
        "transaction_timeout_ms": transaction.transaction_timeout_ms,
        "current_transaction_start_time_ms": started_ms,
        "transaction_duration_ms": None if started_ms is None else _now_ms() - started_ms,
        "topic_partitions": described.partitions,
    }


def run_abort(arguments: argparse.Namespace) -> int:
    partition = TopicPartition(arguments.topic, arguments.partition)
    ids = [getattr(arguments, name) for name in ("producer_id", "producer_epoch", "coordinator_epoch")]
    if (arguments.start_offset is None) == (ids == [None] * 3):
        raise InvalidInput("no transaction selected: use --start-offset, or --producer-id and its epochs")
    if arguments.start_offset is None and None in ids:
        raise InvalidInput("--producer-id, --producer-epoch and --coordinator-epoch must be used together")
    with connect_cluster(arguments) as cluster:
        if arguments.start_offset is not None:
            ids = _find_producer(cluster, partition, arguments.start_offset)
        abort_transaction(cluster, partition, *ids)
    print(f"aborted the transaction of producer {ids[0]} in {partition}")
    return 0


def _find_producer(cluster: ClusterClient, partition: TopicPartition, start_offset: int) -> list[int]:
    for _, producer in list_open_transactions(cluster, [partition]):
        if producer.current_txn_start_offset == start_offset:
            return [producer.producer_id, producer.producer_epoch, producer.coordinator_epoch]
    raise InvalidInput(f"no open transaction starts at offset {start_offset} of {partition}")


def run_find_hanging(arguments: argparse.Namespace) -> int:
    if arguments.topic is None and arguments.broker_id is None:
        raise InvalidInput("no partitions selected: use --topic or --broker-id")
    if arguments.partition is not None and arguments.topic is None:
        raise InvalidInput("--partition requires --topic")
    with connect_cluster(arguments) as cluster:
        if arguments.broker_id is not None and arguments.broker_id not in cluster.brokers_by_id():
            raise InvalidInput(f"broker {arguments.broker_id} is not available")
        partitions = _select_partitions(cluster, arguments)
        older_than_ms = arguments.max_transaction_timeout * MINUTE_MS
        rows = [
            _hanging_transaction_to_json(each)
            for each in find_hanging_transactions(cluster, partitions, older_than_ms, arguments.broker_id)
        ]
    names = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset")
    _print_rows(arguments, rows, *names, "last_timestamp", "duration_min")
    return 0


def _select_partitions(cluster: ClusterClient, arguments: argparse.Namespace) -> list[TopicPartition]:
    if arguments.partition is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    topics = list_topics(cluster)
    if arguments.topic is not None:
        topics = [cluster.retry(lambda: cluster.topic(arguments.topic))]
    return [
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if arguments.broker_id in (None, *partition.replica_nodes)
    ]


def _hanging_transaction_to_json(found: OpenTransaction) -> dict[str, Any]:
    producer = found.producer
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.current_txn_start_offset,
        "last_timestamp": producer.last_timestamp,
        "duration_min": (_now_ms() - producer.last_timestamp) // MINUTE_MS,
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _print_rows(arguments: argparse.Namespace, rows: list[dict[str, Any]], *names: str) -> None:
    if arguments.json:
        print_json(rows)
    else:
        print(_format_columns(rows, *names))


def _format_columns(rows: list[dict[str, Any]], *names: str) -> str:
    headings = [name.upper().replace("_", " ") for name in names]
    return format_table(headings, [[row[name] for name in names] for row in rows])
