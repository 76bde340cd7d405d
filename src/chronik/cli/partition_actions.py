"""`chronik topics reassign`, `reassignments`, `elect-leaders` and `begin-anew`: partition placement and leadership."""

from __future__ import annotations

import argparse
import re
from typing import Any

from chronik.cli.arguments import InvalidInput, add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.output import format_table, join_ids, print_json
from chronik.client.cluster import ClusterClient
from chronik.client.offsets import find_lost_partitions
from chronik.client.partitions import elect_leaders, list_reassignments, reassign_partitions, restart_lost_partition
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError

_REASSIGNMENT = re.compile(r"([0-9]{1,9}):([0-9]{1,9}(?:,[0-9]{1,9})*)")


def add_partition_actions(actions: Any) -> None:
    reassign = actions.add_parser("reassign", help="reassign partitions to other brokers")
    reassign.add_argument("name", metavar="TOPIC", help="topic of the partitions")
    reassign.add_argument(
        "partitions",
        nargs="+",
        metavar="PARTITION:BROKER,…",
        help="new replicas of a partition, preferred leader first; 0:1,2,3 assigns partition 0 to brokers 1, 2 and 3",
    )
    reassign.add_argument(
        "--cancel", action="store_true", help="cancel the reassignments of the given partitions (such as 0 1 2)"
    )
    add_client_arguments(reassign, run_reassign)

    moves = actions.add_parser("reassignments", help="list ongoing partition reassignments")
    add_json_argument(moves)
    add_client_arguments(moves, run_reassignments)

    elect = actions.add_parser("elect-leaders", help="elect the preferred leaders of partitions")
    elect.add_argument("--topic", metavar="TOPIC", help="elect only for this topic (default: all topics)")
    elect.add_argument(
        "--partition", type=int, action="append", default=[], metavar="N", help="partition of --topic; repeatable"
    )
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="elect out-of-sync replicas for partitions without a leader; records that they lack are lost",
    )
    add_client_arguments(elect, run_elect_leaders)

    restart = actions.add_parser("begin-anew", help="continue without the records that a partition's disks have lost")
    restart.add_argument("name", metavar="TOPIC", help="topic of the lost partitions")
    restart.add_argument(
        "--partition", type=int, action="append", required=True, metavar="N", help="partition of TOPIC; repeatable"
    )
    add_client_arguments(restart, run_begin_anew)


def run_begin_anew(arguments: argparse.Namespace) -> int:
    wanted = [TopicPartition(arguments.name, index) for index in arguments.partition]
    with connect_cluster(arguments) as cluster:
        leaderless = [partition for partition in wanted if not _has_leader(cluster, partition)]
        led = [partition for partition in wanted if partition not in leaderless]
        lost = find_lost_partitions(cluster, led)
        for partition in led:
            if partition not in lost:
                raise InvalidInput(f"{partition} has not lost records; no partition was changed")
        for partition in led:
            print(f"{partition} restarts at offset {restart_lost_partition(cluster, partition)}")
        refused = {each: error for each, error in elect_leaders(cluster, leaderless, unclean=True).items() if error}
    for partition in leaderless:
        if partition not in refused:
            print(f"{partition} continues with the records that its replicas have")
    _raise_errors(refused)
    return 0


def _has_leader(cluster: ClusterClient, partition: TopicPartition) -> bool:
    try:
        return cluster.leader_id(partition) >= 0
    except KafkaError as error:
        if error.code is ErrorCode.LEADER_NOT_AVAILABLE:
            return False
        raise


def run_reassign(arguments: argparse.Namespace) -> int:
    parse = _parse_partition if arguments.cancel else _parse_reassignment
    wanted = {
        TopicPartition(arguments.name, partition): replicas for partition, replicas in map(parse, arguments.partitions)
    }
    with connect_cluster(arguments) as cluster:
        refused = reassign_partitions(cluster, wanted)
    for partition in wanted:
        if partition not in refused:
            print(f"{partition}: reassignment cancelled" if arguments.cancel else f"{partition}: reassignment started")
    _raise_errors(refused)
    return 0


def run_reassignments(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        moves = list_reassignments(cluster)
    if arguments.json:
        print_json(
            [
                {
                    "topic": move.partition.topic,
                    "partition": move.partition.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for move in moves
            ]
        )
    else:
        rows = (
            (*move.partition, join_ids(move.replicas), join_ids(move.adding), join_ids(move.removing)) for move in moves
        )
        print(format_table(("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows))
    return 0


def run_elect_leaders(arguments: argparse.Namespace) -> int:
    if arguments.partition and arguments.topic is None:
        raise InvalidInput("--partition requires --topic")
    with connect_cluster(arguments) as cluster:
        wanted = None
        if arguments.topic is not None:
            named = [TopicPartition(arguments.topic, index) for index in arguments.partition]
            wanted = named or cluster.partitions(arguments.topic)
        outcomes = elect_leaders(cluster, wanted, unclean=arguments.unclean)
    refused = {}
    for partition, error in outcomes.items():
        if error is None:
            print(f"{partition}: leader elected")
        elif error.code is ErrorCode.ELECTION_NOT_NEEDED:
            print(f"{partition}: no election needed")
        else:
            refused[partition] = error
    if not outcomes:
        print("no partition needs a leader election")
    _raise_errors(refused)
    return 0


def _parse_reassignment(text: str) -> tuple[int, list[int] | None]:
    match = _REASSIGNMENT.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r}: expected PARTITION:BROKER,… such as 0:1,2,3")
    return int(match[1]), [int(broker) for broker in match[2].split(",")]


def _parse_partition(text: str) -> tuple[int, list[int] | None]:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise InvalidInput(f"{text!r}: expected a partition index")
    return int(text), None


def _raise_errors(refused: dict[TopicPartition, KafkaError]) -> None:
    if refused:
        details = "; ".join(f"{partition}: {error.message}" for partition, error in refused.items())
        raise KafkaError(next(iter(refused.values())).code, details)
