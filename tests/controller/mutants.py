"""Leaders that break one rule of `reconciling` each. The tests must notice every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from chronik.controller import reconciling
from chronik.controller.reconciling import Seen
from chronik.raft.membership import DemoteVoter, Member, RemoveNode


class Mutant(NamedTuple):
    name: str
    apply: Callable[[pytest.MonkeyPatch], None]


def rule(name: str, broken: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    assert callable(getattr(reconciling, name))
    return lambda patch: patch.setattr(reconciling, name, broken)


may_vote, may_succeed = reconciling.may_vote, reconciling.may_succeed


def _with_all_heard(seen: Seen) -> Seen:
    return seen._replace(heard={*seen.nodes, *(member.node_id for member in seen.membership.members)})


def _promotes_observers(seen: Seen, member: Member) -> bool:
    return may_vote(seen._replace(nodes={key: replace(node, voter=True) for key, node in seen.nodes.items()}), member)


def _takes_by_id(seen: Seen) -> reconciling.Step | None:
    for voter in seen.voters:
        if voter not in seen.meant and voter != seen.leader:
            return DemoteVoter(voter) if voter in seen.nodes else RemoveNode(voter)
    return None


MUTANTS: Final = (
    Mutant("promotes who is silent", rule("may_vote", lambda seen, member: may_vote(_with_all_heard(seen), member))),
    Mutant(
        "promotes who has not caught up",
        rule("may_vote", lambda seen, member: may_vote(seen._replace(membership_index=0), member)),
    ),
    Mutant("promotes observers", rule("may_vote", _promotes_observers)),
    Mutant("promotes nobody", rule("may_vote", lambda seen, member: False)),
    Mutant("takes votes before it gives others", rule("is_vote_awaited", lambda seen: False)),
    Mutant(
        "waits for the vote of who is silent",
        rule("is_vote_awaited", lambda seen: any(node_id not in seen.voters for node_id in seen.meant)),
    ),
    Mutant("takes votes from a majority", rule("keeps_majority", lambda voters, heard: True)),
    Mutant(
        "is content with half of the voters",
        rule("keeps_majority", lambda voters, heard: 2 * len(set(voters) & set(heard)) >= len(voters)),
    ),
    Mutant("goes down to two", rule("keeps_enough", lambda rest, meant: True)),
    Mutant("keeps three whoever is meant to vote", rule("keeps_enough", lambda rest, meant: len(rest) >= 3)),
    Mutant(
        "hands over to who is silent",
        rule("may_succeed", lambda seen, voter: may_succeed(_with_all_heard(seen), voter)),
    ),
    Mutant(
        "hands over to who goes, too",
        rule("may_succeed", lambda seen, voter: voter != seen.leader and voter in seen.heard),
    ),
    Mutant(
        "hands over to who is drained, too",
        rule("_drained_leader", lambda seen: reconciling._handed_over(seen, to_drained=True)),
    ),
    Mutant("never hands over", rule("may_succeed", lambda seen, voter: False)),
    Mutant("hands over to itself", rule("may_succeed", lambda seen, voter: voter == seen.leader)),
    Mutant("takes votes whatever comes of it", rule("_taken_vote", _takes_by_id)),
    Mutant("removes nobody", rule("_removed_learner", lambda seen: None)),
    Mutant("leads although it is drained", rule("_drained_leader", lambda seen: None)),
)
