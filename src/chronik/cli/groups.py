"""`chronik groups`: list and describe consumer groups."""

from __future__ import annotations

import argparse
from typing import Any

from chronik.cli.arguments import add_client_arguments, add_json_argument, connect_cluster
from chronik.cli.group_changes import add_delete_arguments, add_reset_arguments
from chronik.cli.output import format_table, print_json
from chronik.client.cluster import ClusterClient
from chronik.client.groups import decode_assignment, describe_group, list_committed_offsets, summarize_groups
from chronik.client.offsets import list_existing_end_offsets
from chronik.escaping import escape
from chronik.protocol.messages.describe_groups import DescribedGroupMember


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
