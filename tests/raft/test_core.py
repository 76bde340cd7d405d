from __future__ import annotations

import ast
from pathlib import Path

import pytest

import chronik.raft
from chronik.errors import ConfigError, InvariantError
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.raft.config import RaftConfig
from chronik.raft.entries import HardState
from chronik.raft.events import EntriesApplied, Persisted
from chronik.raft.membership import (
    UNBOUND_DIRECTORY,
    AddLearner,
    BindDirectory,
    Membership,
    PromoteLearner,
    RaftMember,
    RemoveMember,
    apply_change,
    decode_membership,
    encode_membership,
)
from chronik.raft.node import RaftNode
from chronik.raft.roles import TRANSITIONS, IllegalRoleTransition, Role, RoleHistory, format_mermaid
from tests.raft.lab import Lab, directory

PACKAGE_PATH = Path(chronik.raft.__path__[0])
PAGE = Path(__file__).parents[2] / "docs" / "operate" / "cluster.md"
ALLOWED_MODULES = {"__future__", "bisect", "collections", "dataclasses", "enum", "msgspec", "random", "types", "typing"}
ALLOWED_CHRONIK_MODULES = {"chronik.crc", "chronik.errors", "chronik.ids", "chronik.limits"}
FORBIDDEN_BUILTINS = {"__import__", "input", "open", "print"}


@pytest.mark.parametrize("path", sorted(PACKAGE_PATH.rglob("*.py")), ids=lambda path: path.stem)
def test_module_imports_no_io_and_no_clock(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        assert not (isinstance(node, ast.Name) and node.id in FORBIDDEN_BUILTINS), f"{path.stem} calls {node.id}"
        for module in modules:
            is_ours = module in ALLOWED_CHRONIK_MODULES or f"{module}.".startswith("chronik.raft.")
            assert is_ours or module.split(".")[0] in ALLOWED_MODULES, f"{path.stem} imports {module}"


def test_role_transition_outside_table_raises_with_history() -> None:
    for source in Role:
        for target in Role:
            history = RoleHistory(7)
            history.role = source
            if (source, target) in TRANSITIONS:
                assert history.transition_to(target, 3, "because").target is target
            else:
                with pytest.raises(
                    IllegalRoleTransition, match=r"node 7: illegal role transition term 3: .* transitions: none"
                ):
                    history.transition_to(target, 3, "because")


def test_docs_diagram_contains_every_role_transition() -> None:
    assert format_mermaid().count("-->") == len(TRANSITIONS) + 1
    assert format_mermaid() in PAGE.read_text(encoding="utf-8")


def test_membership_changes_are_applied_and_invalid_ones_rejected() -> None:
    one, two, three = (RaftMember(node_id, directory(node_id), is_voter=True) for node_id in (1, 2, 3))
    voters = Membership((one, two, three))
    with_learner = apply_change(voters, AddLearner(4, directory(4)))
    assert with_learner is not None
    assert with_learner.voters == (1, 2, 3)
    promoted = apply_change(with_learner, PromoteLearner(4))
    assert promoted is not None
    assert promoted.voters == (1, 2, 3, 4)
    replaced = apply_change(voters, AddLearner(3, directory(3, 1)))
    assert replaced is not None
    assert replaced.voters == (1, 2)
    for senseless in (
        AddLearner(1, directory(1)),
        AddLearner(4, UNBOUND_DIRECTORY),
        PromoteLearner(1),
        PromoteLearner(9),
        RemoveMember(9),
        BindDirectory(1, directory(1, 1)),
    ):
        assert apply_change(voters, senseless) is None
    assert apply_change(Membership((one,)), RemoveMember(1)) is None


def test_change_without_bound_majority_is_rejected() -> None:
    one, two = (RaftMember(node_id, directory(node_id), is_voter=True) for node_id in (1, 2))
    absent = RaftMember(3, UNBOUND_DIRECTORY, is_voter=True)
    founded = Membership((one, two, absent))
    assert apply_change(founded, RemoveMember(2)) is None
    assert apply_change(founded, RemoveMember(3)) == Membership((one, two))


def test_membership_is_limited_to_maximum_size() -> None:
    full = Membership(
        tuple(RaftMember(node_id, directory(node_id), True) for node_id in range(1, CLUSTER_MEMBERS_MAX + 1))
    )
    another = AddLearner(CLUSTER_MEMBERS_MAX + 1, directory(CLUSTER_MEMBERS_MAX + 1))
    assert apply_change(full, another) is None
    assert apply_change(full.without_member(1), another) is not None


def test_membership_round_trips_through_encoding() -> None:
    membership = Membership((RaftMember(1, directory(1), True), RaftMember(2, UNBOUND_DIRECTORY, False)))
    assert decode_membership(encode_membership(membership)) == membership


@pytest.mark.parametrize(
    "config",
    [
        RaftConfig(heartbeat_ticks=6),
        RaftConfig(heartbeat_ticks=0),
        RaftConfig(election_spread_ticks=0),
        RaftConfig(append_bytes_max=0),
        RaftConfig(uncommitted_bytes_max=10),
    ],
)
def test_inconsistent_config_is_rejected(config: RaftConfig) -> None:
    with pytest.raises(ConfigError):
        config.check()


def test_start_fails_if_log_lacks_committed_entries() -> None:
    lab = Lab()
    lab.elect(1)
    host = lab.hosts[1]
    host.disk.hard_state = HardState(term=1, vote=1, commit=5)
    with pytest.raises(InvariantError, match="lacks committed entries"):
        lab.restart(1)


def test_recovery_takes_term_from_log_if_hard_state_is_older() -> None:
    lab = Lab()
    lab.seed_log(1, [1, 3], term=2)
    assert isinstance(lab[1], RaftNode)
    assert (lab[1].status.term, lab[1].vote) == (3, -1)
    assert lab.hosts[1].disk.hard_state.term == 3


def test_unexpected_completion_events_raise() -> None:
    lab = Lab()
    lab.elect(1)
    with pytest.raises(InvariantError, match="not outstanding"):
        lab.handle(1, Persisted(99))
    with pytest.raises(InvariantError, match="not handed out"):
        lab.handle(1, EntriesApplied(99))
