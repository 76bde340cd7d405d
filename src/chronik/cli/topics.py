"""`chronik topics`: create, list, describe, alter and delete topics.

`reassign`, `reassignments`, `elect-leaders` and `begin-anew` change the placement and leadership of partitions.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, Final

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_json_argument,
    connect_cluster,
    parse_key_values,
    parse_positive_int,
)
from chronik.cli.output import format_table, join_ids, print_json
from chronik.client.admin import (
    BROKER_DEFAULT,
    NewTopic,
    alter_topic_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_configs,
    list_topics,
)
from chronik.client.cluster import ClusterClient
from chronik.client.configs import DYNAMIC_TOPIC_CONFIG
from chronik.client.offsets import find_lost_partitions, list_earliest_offsets, list_latest_offsets
from chronik.client.partitions import elect_leaders, list_reassignments, reassign_partitions, restart_lost_partition
from chronik.client.records import TopicPartition
from chronik.ids import format_id
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic
from chronik.wording import pluralize

_REASSIGNMENT = re.compile(r"([0-9]{1,9}):([0-9]{1,9}(?:,[0-9]{1,9})*)")

EXIT_FAILED: Final = 1


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
    add_client_arguments(restart, run_restart_lost_partitions)


def run_restart_lost_partitions(arguments: argparse.Namespace) -> int:
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics")
    create.add_argument("names", nargs="+", metavar="NAME", help="name of the topic; several are possible")
    create.add_argument(
        "-p",
        "--partitions",
        type=parse_positive_int,
        default=BROKER_DEFAULT,
        metavar="N",
        help="number of partitions (default: num.partitions of the broker)",
    )
    create.add_argument(
        "-r",
        "--replication-factor",
        type=parse_positive_int,
        default=BROKER_DEFAULT,
        metavar="N",
        help="replicas of each partition (default: default.replication.factor of the broker)",
    )
    _add_config_argument(create)
    create.add_argument("--if-not-exists", action="store_true", help="do not fail for a topic that exists")
    add_client_arguments(create, run_create)

    listing = actions.add_parser("list", help="list topics")
    listing.add_argument("--all", action="store_true", help="include internal topics")
    add_json_argument(listing)
    add_client_arguments(listing, run_list)

    describe = actions.add_parser("describe", help="show the partitions, offsets and configs of topics")
    describe.add_argument("names", nargs="+", metavar="TOPIC", help="topic to show; several are possible")
    add_json_argument(describe)
    add_client_arguments(describe, run_describe)

    alter = actions.add_parser("alter", help="add partitions to a topic, or change its configs")
    alter.add_argument("name", metavar="TOPIC", help="topic to change")
    alter.add_argument(
        "-p", "--partitions", type=parse_positive_int, metavar="N", help="new total number of partitions"
    )
    _add_config_argument(alter)
    alter.add_argument("--delete-config", action="append", default=[], metavar="KEY", help="reset KEY to its default")
    add_client_arguments(alter, run_alter)

    delete = actions.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("names", nargs="+", metavar="TOPIC", help="topic to delete; several are possible")
    delete.add_argument("--if-exists", action="store_true", help="do not fail for a topic that does not exist")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_client_arguments(delete, run_delete)

    add_partition_actions(actions)


def _add_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="topic config, such as retention.ms=60000; repeatable",
    )


def run_create(arguments: argparse.Namespace) -> int:
    configs = parse_key_values(arguments.config, "--config")
    with connect_cluster(arguments) as cluster:
        names = arguments.names
        if arguments.if_not_exists:
            existing = {topic.name for topic in list_topics(cluster)}
            names = [name for name in names if name not in existing]
        if names:
            new = [NewTopic(name, arguments.partitions, arguments.replication_factor, configs) for name in names]
            create_topics(cluster, new)
    for name in arguments.names:
        print(f"created {name}" if name in names else f"{name} already exists")
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        topics = [topic for topic in list_topics(cluster) if arguments.all or not topic.is_internal]
    if arguments.json:
        print_json([_topic_to_json(topic) for topic in topics])
    else:
        rows = ((topic.name, len(topic.partitions), _replication_factor(topic)) for topic in topics)
        print(format_table(("TOPIC", "PARTITIONS", "REPLICATION"), rows))
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        topics = [_describe_topic(cluster, name) for name in arguments.names]
    if arguments.json:
        print_json(topics)
    else:
        print("\n\n".join(map(_format_topic, topics)))
    return 0


def run_alter(arguments: argparse.Namespace) -> int:
    changes = parse_key_values(arguments.config, "--config")
    if arguments.partitions is None and not changes and not arguments.delete_config:
        raise InvalidInput("nothing to alter: use --partitions, --config or --delete-config")
    with connect_cluster(arguments) as cluster:
        if changes or arguments.delete_config:
            alter_topic_configs(cluster, arguments.name, changes=changes, removals=arguments.delete_config)
        if arguments.partitions is not None:
            create_partitions(cluster, arguments.name, arguments.partitions)
    print(f"altered {arguments.name}")
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        names = arguments.names
        if arguments.if_exists:
            existing = {topic.name for topic in list_topics(cluster)}
            names = [name for name in names if name in existing]
        if names and not arguments.yes and not _confirm_deletion(names):
            print("no topics were deleted")
            return EXIT_FAILED
        if names:
            delete_topics(cluster, names)
    for name in arguments.names:
        print(f"deleted {name}" if name in names else f"{name} does not exist")
    return 0


def _confirm_deletion(names: list[str]) -> bool:
    """Ask the user to confirm a topic deletion.

    Without a terminal, return True.
    """
    if not sys.stdin.isatty():
        return True
    print(f"This deletes {pluralize(len(names), 'topic')} with all records: {', '.join(names)}")
    return input("Continue? [y/N] ").strip().lower() in ("y", "yes")


def _topic_to_json(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": format_id(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
    }


def _replication_factor(topic: MetadataResponseTopic) -> int:
    return max((len(partition.replica_nodes) for partition in topic.partitions), default=0)


def _describe_topic(cluster: ClusterClient, name: str) -> dict[str, Any]:
    try:
        topic = cluster.topic(name)
    except KafkaError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(error.code, f"topic {name} does not exist") from None
        raise
    led = [TopicPartition(name, each.partition_index) for each in topic.partitions if each.leader_id >= 0]
    lost = find_lost_partitions(cluster, led)
    led = [partition for partition in led if partition not in lost]
    starts, ends = list_earliest_offsets(cluster, led), list_latest_offsets(cluster, led)
    partitions = []
    for each in topic.partitions:
        partition = TopicPartition(name, each.partition_index)
        partitions.append(
            {
                "partition": each.partition_index,
                "leader": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replica_nodes,
                "isr": each.isr_nodes,
                "offline": each.offline_replicas,
                "start_offset": starts.get(partition),
                "end_offset": ends.get(partition),
                "lost": partition in lost or not each.isr_nodes,
            }
        )
    own = {
        config.name: config.value
        for config in describe_topic_configs(cluster, name)
        if config.config_source == DYNAMIC_TOPIC_CONFIG
    }
    return {**_topic_to_json(topic), "partitions": partitions, "configs": own}


def _format_data_loss(partition: dict[str, Any]) -> str:
    where = (
        f"the disk of broker {partition['leader']}" if partition["leader"] >= 0 else "the disks of all in-sync replicas"
    )
    return (
        f"Partition {partition['partition']} has lost records that were on {where}; see the brokers' logs."
        " Restore the files and restart the broker, or continue without these records: chronik topics begin-anew"
    )


def _format_topic(topic: dict[str, Any]) -> str:
    configs = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
    rows = (
        (
            each["partition"],
            each["leader"],
            each["leader_epoch"],
            join_ids(each["replicas"]),
            join_ids(each["isr"]),
            each["start_offset"],
            each["end_offset"],
        )
        for each in topic["partitions"]
    )
    return "\n".join(
        [
            f"Topic: {topic['name']}",
            f"Id: {topic['id']}",
            f"Configs: {configs or '(all defaults)'}",
            format_table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"), rows),
            *map(_format_data_loss, (each for each in topic["partitions"] if each["lost"])),
        ]
    )
