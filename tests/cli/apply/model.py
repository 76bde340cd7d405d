"""An in-memory model of a cluster's state, and Hypothesis strategies for states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from chronik.cli.apply.cluster_spec import ClusterSpec, PasswordSource, QuotaEntityKey, TopicSpec, UserSpec
from chronik.cli.apply.planner import (
    AddAclsStep,
    AddPartitionsStep,
    AlterConfigsStep,
    AlterQuotasStep,
    CreateTopicStep,
    DeleteCredentialsStep,
    DeleteTopicStep,
    PlanStep,
    RemoveAclsStep,
    SetPasswordStep,
    ValueChange,
)
from chronik.client.security import AclBinding
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType
from chronik.security.sasl.scram_keys import ITERATIONS_MIN, MECHANISMS_BY_NAME

DEFAULT_PARTITIONS, DEFAULT_FACTOR = 4, 1


class ClusterModel:
    """A cluster in memory that executes plan steps, and fails for a duplicate topic or a missing credential."""

    def __init__(self, state: ClusterSpec) -> None:
        self.topics = dict(state.topics or {})
        self.broker = dict(state.broker or {})
        self.users = {name: dict(user.mechanisms) for name, user in (state.users or {}).items()}
        self.acls = set(state.acls or ())
        self.quotas = {entity: dict(quotas) for entity, quotas in (state.quotas or {}).items()}

    @property
    def state(self) -> ClusterSpec:
        users = {name: UserSpec(mechanisms) for name, mechanisms in self.users.items()}
        return ClusterSpec(self.topics, self.broker, users, frozenset(self.acls), self.quotas)

    def execute(self, steps: Iterable[PlanStep]) -> None:
        for step in steps:
            self._execute(step)

    def _execute(self, step: PlanStep) -> None:
        match step:
            case CreateTopicStep(name, topic):
                assert name not in self.topics
                partitions = topic.partitions or DEFAULT_PARTITIONS
                self.topics[name] = TopicSpec(partitions, topic.replication_factor or DEFAULT_FACTOR, topic.configs)
            case AddPartitionsStep(name, before, after):
                assert self.topics[name].partitions == before < after
                self.topics[name] = replace(self.topics[name], partitions=after)
            case AlterConfigsStep(None, changes):
                self.broker = apply_changes(self.broker, changes)
            case AlterConfigsStep(str(name), changes):
                self.topics[name] = replace(
                    self.topics[name], configs=apply_changes(self.topics[name].configs, changes)
                )
            case SetPasswordStep(user, mechanisms, _, is_new):
                assert is_new == (user not in self.users)
                iterations = {each: count or ITERATIONS_MIN for each, count in mechanisms.items()}
                self.users.setdefault(user, {}).update(iterations)
            case DeleteCredentialsStep(user, removed, is_all):
                for each in removed:
                    del self.users[user][each]
                assert is_all == (not self.users[user])
                if is_all:
                    del self.users[user]
            case AddAclsStep(acls):
                assert not self.acls & set(acls)
                self.acls |= set(acls)
            case RemoveAclsStep(acls):
                assert self.acls >= set(acls)
                self.acls -= set(acls)
            case AlterQuotasStep(entity, changes):
                self.quotas[entity] = apply_changes(self.quotas.get(entity, {}), changes)
                if not self.quotas[entity]:
                    del self.quotas[entity]
            case DeleteTopicStep(name):
                del self.topics[name]


def apply_changes(before: Mapping[str, Any], changes: Mapping[str, ValueChange]) -> dict[str, Any]:
    assert all(before.get(key) == change.before != change.after for key, change in changes.items())
    after = {**before, **{key: change.after for key, change in changes.items()}}
    return {key: value for key, value in after.items() if value is not None}


# Strategies: few names, so that desired and current state overlap

names = st.sampled_from(["a", "b.c", "d-e", "F"])
user_names = st.sampled_from(["alice", "bob", 'Zoë "\\"', "\x1b[2J\u202e\n", "CN=x, O=y", "."])
numbers = st.integers(1, 3)
configs = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms", "delete.retention.ms"]), st.sampled_from(["1", "20", " 3", "4 "])
)
broker_configs = st.dictionaries(
    st.sampled_from(["message.max.bytes", "log.retention.ms"]), st.sampled_from(["1000", "2000", "+3000"])
)
sources = st.sampled_from([PasswordSource(file="f"), PasswordSource(variable="V")])
mechanisms = st.dictionaries(st.sampled_from(list(MECHANISMS_BY_NAME)), st.sampled_from([4096, 8192]), min_size=1)
wanted_mechanisms = st.dictionaries(
    st.sampled_from(list(MECHANISMS_BY_NAME)), st.sampled_from([None, 4096, 8192]), min_size=1
)
acls = st.builds(
    AclBinding,
    st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.USER]),
    user_names,
    st.sampled_from(PatternType),
    user_names.map("User:{}".format),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
) | st.just(AclBinding(4, CLUSTER_NAME, PatternType.LITERAL, "User:x", "*", AclOperation.ALTER, AclPermission.DENY))
entities: st.SearchStrategy[QuotaEntityKey] = st.sampled_from(
    [
        (("user", "alice"),),
        (("user", None),),
        (("client-id", 'c"'), ("user", "alice")),
        (("client-id", None), ("user", None)),
    ]
)
quotas = st.dictionaries(
    entities,
    st.dictionaries(st.sampled_from(["producer_byte_rate", "controller_mutation_rate"]), st.just(7.0), min_size=1)
    | st.dictionaries(st.just("request_percentage"), st.sampled_from([0.1, 1e-7, 1e22, 12.5]), min_size=1),
)


def cluster_specs() -> st.SearchStrategy[ClusterSpec]:
    """Generate the states of clusters."""
    return st.builds(
        ClusterSpec,
        st.dictionaries(names, st.builds(TopicSpec, numbers, numbers, configs)),
        broker_configs,
        st.dictionaries(user_names, st.builds(UserSpec, mechanisms)),
        st.frozensets(acls, max_size=4),
        quotas,
    )


def desired_specs() -> st.SearchStrategy[ClusterSpec]:
    """Generate the desired states of files."""
    optional = st.none() | numbers
    return st.builds(
        ClusterSpec,
        st.none() | st.dictionaries(names, st.builds(TopicSpec, optional, optional, configs)),
        st.none() | broker_configs,
        st.none() | st.dictionaries(user_names, st.builds(UserSpec, wanted_mechanisms, sources)),
        st.none() | st.frozensets(acls, max_size=4),
        st.none() | quotas,
    )
