"""Attacks on consumer groups: join storms and oversized joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chronik.client.cluster import ClusterClient
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from chronik.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.abuse.attack import Attack, AttackTarget, MeteredClient

GROUP: Final = "stormy"


def coordinator(target: AttackTarget, group: str = GROUP) -> MeteredClient:
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        return MeteredClient(client.retry(lambda: client.coordinator(group)).address, target.meter)


def join(group: str, member_id: str = "", protocols: int = 1) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=f"p{number}", metadata=b"m") for number in range(protocols)],
    )


def joins_and_leaves(target: AttackTarget) -> None:
    """Join and leave a group repeatedly. Each join starts a rebalance."""
    with coordinator(target) as client:
        for _ in range(target.count(20, 1_000)):
            member_id = client.request(join(GROUP), 4, JoinGroupResponse).member_id
            joined = client.request(join(GROUP, member_id), 4, JoinGroupResponse)
            leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=joined.member_id)])
            client.request(leave, 4, LeaveGroupResponse)


def request_unused_member_ids(target: AttackTarget) -> None:
    """Request member ids and never use them."""
    with coordinator(target) as client:
        for _ in range(target.count(100, 5_000)):
            client.request(join(GROUP), 4, JoinGroupResponse)


def many_groups(target: AttackTarget) -> None:
    with coordinator(target) as client:
        for number in range(target.count(100, 5_000)):
            client.request(join(f"g{number}"), 3, JoinGroupResponse)


def many_protocols(count: int) -> Callable[[AttackTarget], None]:
    def strike(target: AttackTarget) -> None:
        for _ in range(target.count(1, 5)):
            with coordinator(target) as client:
                client.request(join(GROUP, protocols=target.count(1_000, count)), 3, JoinGroupResponse)

    return strike


ATTACKS: Final = (
    Attack("joins-and-leaves", "1,000 members that join and leave", joins_and_leaves, quick=True),
    Attack("joins-unused", "5,000 unused member ids", request_unused_member_ids),
    Attack("groups-many", "5,000 groups of one member", many_groups),
    Attack("join-of-10000-protocols", "a join with 10,000 protocols, five times", many_protocols(10_000), quick=True),
)
