"""`chronik groups`: list, describe and delete consumer groups, and reset their offsets.

`reset-offsets` works like kafka-consumer-groups.sh: it prints the new offsets, and commits them only with `--execute`.
The group must have no members, and new offsets are limited to the partition's offset range.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from chronik.cli.arguments import (
    InvalidInput,
    add_client_arguments,
    add_json_argument,
    connect_cluster,
    parse_timestamp_ms,
)
from chronik.cli.output import format_table, print_json
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.groups import (
    GroupOffset,
    commit_offsets,
    decode_assignment,
    describe_group,
    list_committed_offsets,
    summarize_groups,
)
from chronik.client.offsets import list_earliest_offsets, list_existing_end_offsets, list_latest_offsets, list_offsets
from chronik.client.records import TopicPartition
from chronik.durations import parse_duration_ms
from chronik.escaping import escape
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.protocol.messages.describe_groups import DescribedGroupMember
from chronik.wording import pluralize

INACTIVE_STATES = ("Empty", "Dead")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list groups with state, member count and lag")
    add_json_argument(listing)
    add_client_arguments(listing, run_list)
    describe = actions.add_parser("describe", help="show the state, offsets, lag and members of groups")
    describe.add_argument("names", nargs="+", metavar="GROUP", help="group id; several are possible")
    add_json_argument(describe)
    add_client_arguments(describe, run_describe)
    add_delete_arguments(actions.add_parser("delete", help="delete groups without members, and their offsets"))
    add_reset_arguments(actions.add_parser("reset-offsets", help="reset the offsets of a group without members"))


def run_list(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        groups = summarize_groups(cluster)
    if arguments.json:
        print_json([group._asdict() for group in groups])
    else:
        print(format_table(("GROUP", "STATE", "PROTOCOL TYPE", "MEMBERS", "LAG"), groups))
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        groups = [_describe_group(cluster, name) for name in arguments.names]
    if arguments.json:
        print_json(groups)
    else:
        print("\n\n".join(map(_format_group, groups)))
    return 0


def _describe_group(cluster: ClusterClient, name: str) -> dict[str, Any]:
    group = describe_group(cluster, name)
    assigned = {
        partition: member for member in group.members for partition in decode_assignment(member.member_assignment)
    }
    committed = list_committed_offsets(cluster, name)
    partitions = sorted(assigned.keys() | committed.keys())
    ends = list_existing_end_offsets(cluster, partitions)  # the topic of a committed offset may have been deleted
    offsets = []
    for partition in partitions:
        position, end = committed.get(partition), ends.get(partition)
        offsets.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": position.offset if position else None,
                "end_offset": end,
                "lag": end - position.offset if position and end is not None else None,
                "metadata": position.metadata if position else None,
                "member": assigned[partition].member_id if partition in assigned else None,
            }
        )
    return {
        "group": group.group_id,
        "state": group.group_state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_data,
        "members": [_member_to_json(member) for member in sorted(group.members, key=lambda member: member.member_id)],
        "offsets": offsets,
    }


def _member_to_json(member: DescribedGroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "partitions": len(decode_assignment(member.member_assignment)),
    }


def _format_group(group: dict[str, Any]) -> str:
    parts = [f"Group: {escape(group['group'])}", f"State: {group['state']}", f"Members: {len(group['members'])}"]
    if group["members"]:
        parts += ["", _format_columns(group["members"], "member", "instance", "client_id", "host", "partitions")]
    if group["offsets"]:
        parts += [
            "",
            _format_columns(group["offsets"], "topic", "partition", "committed", "end_offset", "lag", "member"),
        ]
    return "\n".join(parts)


def _format_columns(objects: list[dict[str, Any]], *names: str) -> str:
    headings = [name.upper().replace("_", " ") for name in names]
    return format_table(headings, [[each[name] for name in names] for each in objects])


def add_delete_arguments(delete: argparse.ArgumentParser) -> None:
    delete.add_argument("names", nargs="+", metavar="GROUP", help="group id; several are possible")
    add_client_arguments(delete, run_delete)


def add_reset_arguments(reset: argparse.ArgumentParser) -> None:
    reset.add_argument("name", metavar="GROUP", help="group id")
    reset.add_argument(
        "-t",
        "--topic",
        action="append",
        metavar="TOPIC[:PARTITION,…]",
        help="topic or partitions to reset; repeatable (default: all topics with committed offsets)",
    )
    targets = reset.add_mutually_exclusive_group(required=True)
    targets.add_argument("--to-earliest", action="store_true", help="reset to the earliest offset")
    targets.add_argument("--to-latest", action="store_true", help="reset to the latest offset")
    targets.add_argument("--to-offset", type=_parse_offset, metavar="N", help="reset to offset N")
    targets.add_argument(
        "--to-datetime",
        type=_parse_datetime,
        metavar="TIME",
        help="reset to the first record at or after TIME: ISO 8601 (UTC if it has no time zone), or milliseconds "
        "since the epoch",
    )
    targets.add_argument(
        "--by-duration",
        type=_parse_duration,
        metavar="DURATION",
        help="reset to the first record of the last DURATION: ISO 8601, such as P1DT2H30M",
    )
    targets.add_argument("--shift-by", type=int, metavar="N", help="shift the offsets by N, backward if negative")
    modes = reset.add_mutually_exclusive_group()
    modes.add_argument("--dry-run", action="store_true", help="print the new offsets without committing them (default)")
    modes.add_argument("--execute", action="store_true", help="commit the new offsets")
    add_json_argument(reset)
    add_client_arguments(reset, run_reset)


def run_delete(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        for name in arguments.names:
            _delete_group(cluster, name)
            print(f"deleted {name}")
    return 0


def _delete_group(cluster: ClusterClient, name: str) -> None:
    def ask() -> None:
        request = DeleteGroupsRequest(groups_names=[name])
        (result,) = cluster.coordinator(name).request(request, DeleteGroupsResponse).results
        raise_for_code(result.error_code, f"group {name}")

    cluster.retry(ask, repeatable=False)


def run_reset(arguments: argparse.Namespace) -> int:
    with connect_cluster(arguments) as cluster:
        committed = _fetch_inactive_group_offsets(cluster, arguments.name)
        partitions = _select_partitions(cluster, arguments.topic, committed)
        new = _compute_new_offsets(cluster, arguments, partitions, committed)
        if arguments.execute:
            commit_offsets(cluster, arguments.name, new)
    rows = [
        (topic, partition, old.offset if (old := committed.get(TopicPartition(topic, partition))) else None, offset)
        for (topic, partition), offset in sorted(new.items())
    ]
    if arguments.json:
        names = ("topic", "partition", "committed", "new_offset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print(format_table(("TOPIC", "PARTITION", "COMMITTED", "NEW OFFSET"), rows))
        if not arguments.execute:
            print("\nDry run: no offsets were changed. Use --execute to commit them.")
    return 0


def _fetch_inactive_group_offsets(cluster: ClusterClient, name: str) -> Mapping[TopicPartition, GroupOffset]:
    """Return the committed offsets of a group; raise an error if the group has members.

    A group that does not exist yet has none, and may still be given offsets.

    Raises:
        InvalidInput: The group has members.
    """
    try:
        state = describe_group(cluster, name).group_state
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    if state not in INACTIVE_STATES:
        raise InvalidInput(f"group {name} is {state}: offsets can only be reset while the group has no members")
    return list_committed_offsets(cluster, name)


def _select_partitions(
    cluster: ClusterClient, topics: list[str] | None, committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    if topics is None:
        chosen = sorted(committed)
        if not chosen:
            raise InvalidInput("the group has no committed offsets: choose topics with --topic")
        return chosen
    found: dict[TopicPartition, None] = {}
    for text in topics:
        found |= dict.fromkeys(_parse_partitions(cluster, text))
    return list(found)


def _parse_partitions(cluster: ClusterClient, text: str) -> list[TopicPartition]:
    topic, colon, numbers = text.partition(":")
    known = cluster.retry(lambda: cluster.partitions(topic))
    if not colon:
        return known
    if re.fullmatch(r"\d{1,10}(,\d{1,10})*", numbers) is None:
        raise InvalidInput(f"--topic {text!r}: expected TOPIC or TOPIC:PARTITION,…")
    wanted = [TopicPartition(topic, int(number)) for number in numbers.split(",")]
    for partition in wanted:
        if partition not in known:
            count = pluralize(len(known), "partition")
            raise InvalidInput(f"topic {topic} has {count}, but no partition {partition.partition}")
    return wanted


def _compute_new_offsets(
    cluster: ClusterClient,
    arguments: argparse.Namespace,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, GroupOffset],
) -> dict[TopicPartition, int]:
    if arguments.to_latest:
        return list_latest_offsets(cluster, partitions)
    first = list_earliest_offsets(cluster, partitions)
    if arguments.to_earliest:
        return first
    last = list_latest_offsets(cluster, partitions)
    timestamp = arguments.to_datetime
    if arguments.by_duration is not None:
        timestamp = max(0, time.time_ns() // 1_000_000 - arguments.by_duration)
    if timestamp is not None:
        found = list_offsets(cluster, dict.fromkeys(partitions, timestamp))
        return {each: found[each] if found[each] >= 0 else last[each] for each in partitions}
    wanted: dict[TopicPartition, int] = {}
    for partition in partitions:
        if arguments.shift_by is None:
            wanted[partition] = arguments.to_offset
        elif partition in committed:
            wanted[partition] = committed[partition].offset + arguments.shift_by
        else:
            raise InvalidInput(f"{partition}: --shift-by requires a committed offset")
    return {each: min(max(offset, first[each]), last[each]) for each, offset in wanted.items()}


def _parse_datetime(text: str) -> int:
    try:
        return max(0, parse_timestamp_ms(text))
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_duration(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_offset(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected an offset of at least 0")
    return int(text)
