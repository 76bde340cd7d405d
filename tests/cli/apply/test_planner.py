from __future__ import annotations

from dataclasses import fields, replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.cli.apply import executor
from chronik.cli.apply.cluster_spec import ClusterSpec, PasswordSource, TopicSpec, UserSpec
from chronik.cli.apply.parser import parse_spec
from chronik.cli.apply.planner import (
    AddPartitionsStep,
    AlterConfigsStep,
    ApplyPlan,
    DeleteCredentialsStep,
    DeleteTopicStep,
    PlanStep,
    SetPasswordStep,
    ValueChange,
    plan_changes,
)
from chronik.cli.apply.toml_writer import spec_to_toml
from chronik.client.cluster import ClusterClient
from chronik.planning.views import PlanRejectedError
from tests.cli.apply.model import ClusterModel, cluster_specs, desired_specs
from tests.run_size import sized

EXAMPLES = sized(50, 5000)
PARTS = tuple(field.name for field in fields(ClusterSpec))


def has_fewer_partitions(wanted: ClusterSpec, present: ClusterSpec) -> bool:
    current = present.topics or {}
    return any(
        name in current and topic.partitions is not None and topic.partitions < (current[name].partitions or 0)
        for name, topic in (wanted.topics or {}).items()
    )


def plan_of(wanted: ClusterSpec, present: ClusterSpec) -> ApplyPlan | None:
    """Plan the changes; return None if the plan is rejected, which must happen only if partitions would be removed."""
    try:
        plan = plan_changes(wanted, present)
    except PlanRejectedError:
        assert has_fewer_partitions(wanted, present)
        return None
    assert not has_fewer_partitions(wanted, present)
    return plan


@settings(max_examples=EXAMPLES, deadline=None)
@given(desired_specs(), cluster_specs(), st.booleans())
def test_plan_is_empty_after_execution(wanted: ClusterSpec, present: ClusterSpec, prune: bool) -> None:
    plan = plan_of(wanted, present)
    if plan is None:
        return
    model = ClusterModel(present)
    model.execute(plan.list_pending_steps(prune=prune))
    again = plan_changes(wanted, model.state)
    assert again.list_pending_steps(prune=prune) == ()
    assert again.deletions == (() if prune else plan.deletions)
    for part in PARTS:
        if getattr(wanted, part) is None:
            assert getattr(model.state, part) == getattr(present, part), "sections that the file lacks are unchanged"


@settings(max_examples=EXAMPLES, deadline=None)
@given(desired_specs(), cluster_specs(), st.data())
def test_plan_after_interruption_has_only_remaining_steps(
    wanted: ClusterSpec, present: ClusterSpec, data: st.DataObject
) -> None:
    plan = plan_of(wanted, present)
    if plan is None:
        return
    steps = plan.list_pending_steps(prune=True)
    done = data.draw(st.integers(0, len(steps)))
    model = ClusterModel(present)
    model.execute(steps[:done])
    rest = plan_changes(wanted, model.state).list_pending_steps(prune=True)
    assert len(rest) == len(steps) - done
    model.execute(rest)
    assert plan_changes(wanted, model.state).list_pending_steps(prune=True) == ()


@settings(max_examples=EXAMPLES, deadline=None)
@given(desired_specs(), cluster_specs())
def test_pruned_cluster_equals_desired_state(wanted: ClusterSpec, present: ClusterSpec) -> None:
    plan = plan_of(wanted, present)
    if plan is None:
        return
    model = ClusterModel(present)
    model.execute(plan.list_pending_steps(prune=True))
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
@given(cluster_specs())
def test_plan_of_exported_state_is_empty(present: ClusterSpec) -> None:
    wanted = parse_spec(spec_to_toml(present), "exported")
    plan = plan_changes(wanted, present)
    assert (plan.steps, plan.deletions, plan.notes) == ((), (), ())
    assert {part for part in PARTS if getattr(wanted, part) is None} == set()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cluster_specs())
def test_exported_state_recreates_cluster_elsewhere(present: ClusterSpec) -> None:
    wanted = parse_spec(spec_to_toml(present), "exported")
    assert wanted.users is not None
    source = PasswordSource(variable="PASSWORD")
    wanted = replace(wanted, users={name: replace(user, password=source) for name, user in wanted.users.items()})
    model = ClusterModel(ClusterSpec())
    model.execute(plan_changes(wanted, ClusterSpec()).steps)
    assert model.state == present


def test_fewer_partitions_are_rejected_with_all_other_errors() -> None:
    present = ClusterSpec(topics={"a": TopicSpec(3, 1), "b": TopicSpec(1, 1), "c": TopicSpec(2, 1)}, users={})
    wanted = ClusterSpec(
        topics={"a": TopicSpec(2), "b": TopicSpec(5), "c": TopicSpec()},
        users={"eve": UserSpec({"SCRAM-SHA-256": None})},
    )
    with pytest.raises(PlanRejectedError) as refused:
        plan_changes(wanted, present)
    assert str(refused.value) == (
        "topic a has 3 partitions, but the file has 2: the number of partitions cannot be reduced; "
        "user eve needs a password for SCRAM-SHA-256: add a password_file or a password_env"
    )
    larger = replace(wanted, topics={"b": TopicSpec(5), "c": TopicSpec()}, users=None)
    assert plan_changes(larger, present).steps == (AddPartitionsStep("b", 1, 5),)


def test_different_replication_factor_is_noted_but_not_changed() -> None:
    plan = plan_changes(ClusterSpec(topics={"a": TopicSpec(1, 3)}), ClusterSpec(topics={"a": TopicSpec(1, 1)}))
    assert plan.list_pending_steps(prune=True) == ()
    assert plan.notes == (
        "topic a has replication factor 1, but the file has 3: it is not changed;"
        " use chronik topics reassign to move replicas",
    )
    assert plan.unchanged == {"topic": 1}


def test_current_user_is_never_deleted() -> None:
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    present = ClusterSpec(users={"admin": UserSpec(both), "bob": UserSpec(both)})
    plan = plan_changes(ClusterSpec(users={}), present, "admin")
    assert plan.deletions == (DeleteCredentialsStep("bob", tuple(both), deletes_user=True),)
    assert plan.notes == ("user admin is not in the file, but is kept: it is the user of this command",)
    fewer = ClusterSpec(
        users={name: UserSpec({"SCRAM-SHA-256": None}) for name in both | {"admin": 1, "bob": 1} if "SC" not in name}
    )
    plan = plan_changes(fewer, present, "admin")
    assert plan.deletions == (DeleteCredentialsStep("bob", ("SCRAM-SHA-512",), deletes_user=False),)
    assert plan.notes == (
        "user admin keeps SCRAM-SHA-512, which the file does not list: it is the user of this command",
    )


def test_existing_password_is_kept_unless_iterations_differ() -> None:
    present = ClusterSpec(users={"bob": UserSpec({"SCRAM-SHA-256": 4096})})
    source = PasswordSource(file="bob.password")
    same = ClusterSpec(users={"bob": UserSpec({"SCRAM-SHA-256": None}, source)})
    assert plan_changes(same, present).steps == ()
    more = ClusterSpec(users={"bob": UserSpec({"SCRAM-SHA-256": 8192}, source)})
    assert plan_changes(more, present).steps == (SetPasswordStep("bob", {"SCRAM-SHA-256": 8192}, source, is_new=False),)


def test_unlisted_configs_are_removed_only_with_prune() -> None:
    present = ClusterSpec(topics={"a": TopicSpec(1, 1, {"retention.ms": "1", "segment.ms": "2"}), "b": TopicSpec(1, 1)})
    plan = plan_changes(ClusterSpec(topics={"a": TopicSpec(configs={"retention.ms": "1"})}), present)
    assert plan.steps == ()
    assert plan.deletions == (DeleteTopicStep("b"), AlterConfigsStep("a", {"segment.ms": ValueChange("2", None)}))


def test_execute_plan_reports_number_of_completed_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    progress: list[int] = []
    executed: list[PlanStep] = []
    monkeypatch.setattr(executor, "execute_step", lambda cluster, step, passwords: executed.append(step))
    steps = [DeleteTopicStep("a"), DeleteTopicStep("b")]
    executor.execute_plan(cast(ClusterClient, None), steps, {}, progress.append)
    assert (progress, executed) == ([0, 1], steps)
