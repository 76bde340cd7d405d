from __future__ import annotations

from dataclasses import fields, replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.cli.applying import carrying_out
from chronik.cli.applying.planner import Plan, make_plan
from chronik.cli.applying.reading import parse_state
from chronik.cli.applying.state import PasswordSource, State, Topic, User
from chronik.cli.applying.steps import (
    AddPartitions,
    AlterConfigs,
    Change,
    DeletePasswords,
    DeleteTopic,
    SetPassword,
    Step,
)
from chronik.cli.applying.writing import as_toml
from chronik.client.cluster import Cluster
from chronik.planning.views import Refused
from tests.cli.applying.model import Model, states, wishes
from tests.long import count

EXAMPLES = count(50, 5000)
PARTS = tuple(field.name for field in fields(State))


def has_fewer_partitions(wanted: State, present: State) -> bool:
    current = present.topics or {}
    return any(
        name in current and topic.partitions is not None and topic.partitions < (current[name].partitions or 0)
        for name, topic in (wanted.topics or {}).items()
    )


def plan_of(wanted: State, present: State) -> Plan | None:
    """Plan the changes; return None if the plan is rejected, which must happen only if partitions would be removed."""
    try:
        plan = make_plan(wanted, present)
    except Refused:
        assert has_fewer_partitions(wanted, present)
        return None
    assert not has_fewer_partitions(wanted, present)
    return plan


@settings(max_examples=EXAMPLES, deadline=None)
@given(wishes(), states(), st.booleans())
def test_plan_is_empty_after_execution(wanted: State, present: State, prune: bool) -> None:
    plan = plan_of(wanted, present)
    if plan is None:
        return
    model = Model(present)
    model.take(plan.to_do(prune=prune))
    again = make_plan(wanted, model.state)
    assert again.to_do(prune=prune) == ()
    assert again.deletions == (() if prune else plan.deletions)
    for part in PARTS:
        if getattr(wanted, part) is None:
            assert getattr(model.state, part) == getattr(present, part), "sections that the file lacks are unchanged"


@settings(max_examples=EXAMPLES, deadline=None)
@given(wishes(), states(), st.data())
def test_plan_after_interruption_has_only_remaining_steps(wanted: State, present: State, data: st.DataObject) -> None:
    plan = plan_of(wanted, present)
    if plan is None:
        return
    steps = plan.to_do(prune=True)
    done = data.draw(st.integers(0, len(steps)))
    model = Model(present)
    model.take(steps[:done])
    rest = make_plan(wanted, model.state).to_do(prune=True)
    assert len(rest) == len(steps) - done
    model.take(rest)
    assert make_plan(wanted, model.state).to_do(prune=True) == ()


@settings(max_examples=EXAMPLES, deadline=None)
@given(wishes(), states())
def test_pruned_cluster_equals_desired_state(wanted: State, present: State) -> None:
    plan = plan_of(wanted, present)
    if plan is None:
        return
    model = Model(present)
    model.take(plan.to_do(prune=True))
    after = model.state
    if wanted.topics is not None:
        assert (after.topics or {}).keys() == wanted.topics.keys()
        assert all((after.topics or {})[name].configs == topic.configs for name, topic in wanted.topics.items())
    if wanted.users is not None:
        assert {name: set(user.mechanisms) for name, user in (after.users or {}).items()} == {
            name: set(user.mechanisms) for name, user in wanted.users.items()
        }
    for part in ("broker", "acls", "quotas"):
        if getattr(wanted, part) is not None:
            assert getattr(after, part) == getattr(wanted, part)


@settings(max_examples=EXAMPLES, deadline=None)
@given(states())
def test_plan_of_exported_state_is_empty(present: State) -> None:
    wanted = parse_state(as_toml(present), "exported")
    plan = make_plan(wanted, present)
    assert (plan.steps, plan.deletions, plan.notes) == ((), (), ())
    assert {part for part in PARTS if getattr(wanted, part) is None} == set()


@settings(max_examples=EXAMPLES, deadline=None)
@given(states())
def test_exported_state_recreates_cluster_elsewhere(present: State) -> None:
    wanted = parse_state(as_toml(present), "exported")
    assert wanted.users is not None
    source = PasswordSource(variable="PASSWORD")
    wanted = replace(wanted, users={name: replace(user, password=source) for name, user in wanted.users.items()})
    model = Model(State())
    model.take(make_plan(wanted, State()).steps)
    assert model.state == present


def test_fewer_partitions_are_rejected_with_all_other_errors() -> None:
    present = State(topics={"a": Topic(3, 1), "b": Topic(1, 1), "c": Topic(2, 1)}, users={})
    wanted = State(topics={"a": Topic(2), "b": Topic(5), "c": Topic()}, users={"eve": User({"SCRAM-SHA-256": None})})
    with pytest.raises(Refused) as refused:
        make_plan(wanted, present)
    assert str(refused.value) == (
        "topic a has 3 partitions, but the file has 2: the number of partitions cannot be reduced; "
        "user eve needs a password for SCRAM-SHA-256: add a password_file or a password_env"
    )
    larger = replace(wanted, topics={"b": Topic(5), "c": Topic()}, users=None)
    assert make_plan(larger, present).steps == (AddPartitions("b", 1, 5),)


def test_different_replication_factor_is_noted_but_not_changed() -> None:
    plan = make_plan(State(topics={"a": Topic(1, 3)}), State(topics={"a": Topic(1, 1)}))
    assert plan.to_do(prune=True) == ()
    assert plan.notes == (
        "topic a has replication factor 1, but the file has 3: it is not changed;"
        " use chronik topics reassign to move replicas",
    )
    assert plan.left == {"topic": 1}


def test_current_user_is_never_deleted() -> None:
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    present = State(users={"admin": User(both), "bob": User(both)})
    plan = make_plan(State(users={}), present, "admin")
    assert plan.deletions == (DeletePasswords("bob", tuple(both), is_all=True),)
    assert plan.notes == ("user admin is not in the file, but is kept: it is the user of this command",)
    fewer = State(
        users={name: User({"SCRAM-SHA-256": None}) for name in both | {"admin": 1, "bob": 1} if "SC" not in name}
    )
    plan = make_plan(fewer, present, "admin")
    assert plan.deletions == (DeletePasswords("bob", ("SCRAM-SHA-512",), is_all=False),)
    assert plan.notes == (
        "user admin keeps SCRAM-SHA-512, which the file does not list: it is the user of this command",
    )


def test_existing_password_is_kept_unless_iterations_differ() -> None:
    present = State(users={"bob": User({"SCRAM-SHA-256": 4096})})
    source = PasswordSource(file="bob.password")
    same = State(users={"bob": User({"SCRAM-SHA-256": None}, source)})
    assert make_plan(same, present).steps == ()
    more = State(users={"bob": User({"SCRAM-SHA-256": 8192}, source)})
    assert make_plan(more, present).steps == (SetPassword("bob", {"SCRAM-SHA-256": 8192}, source, is_new=False),)


def test_unlisted_configs_are_removed_only_with_prune() -> None:
    present = State(topics={"a": Topic(1, 1, {"retention.ms": "1", "segment.ms": "2"}), "b": Topic(1, 1)})
    plan = make_plan(State(topics={"a": Topic(configs={"retention.ms": "1"})}), present)
    assert plan.steps == ()
    assert plan.deletions == (DeleteTopic("b"), AlterConfigs("a", {"segment.ms": Change("2", None)}))


def test_execute_plan_reports_number_of_completed_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    progress: list[int] = []
    executed: list[Step] = []
    monkeypatch.setattr(carrying_out, "take", lambda cluster, step, passwords: executed.append(step))
    steps = [DeleteTopic("a"), DeleteTopic("b")]
    carrying_out.carry_out(cast(Cluster, None), steps, {}, progress.append)
    assert (progress, executed) == ([0, 1], steps)
