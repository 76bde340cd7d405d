"""An in-memory model of a cluster's state, and Hypothesis strategies for states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from chronik.cli.applying.state import Entity, PasswordSource, State, Topic, User
from chronik.cli.applying.steps import (
    AddAcls,
    AddPartitions,
    AlterConfigs,
    AlterQuotas,
    Change,
    CreateTopic,
    DeletePasswords,
    DeleteTopic,
    RemoveAcls,
    SetPassword,
    Step,
)
from chronik.client.security.acls import AclBinding
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType
from chronik.security.acls import PatternType, Permission
from chronik.security.sasl.scram_keys import BY_NAME, ITERATIONS_MIN

DEFAULT_PARTITIONS, DEFAULT_FACTOR = 4, 1


class Model:
    """A cluster in memory that executes plan steps, and fails for a duplicate topic or a missing credential."""

    def __init__(self, state: State) -> None:
        self.topics = dict(state.topics or {})
        self.broker = dict(state.broker or {})
        self.users = {name: dict(user.mechanisms) for name, user in (state.users or {}).items()}
        self.acls = set(state.acls or ())
        self.quotas = {entity: dict(quotas) for entity, quotas in (state.quotas or {}).items()}

    @property
    def state(self) -> State:
        users = {name: User(mechanisms) for name, mechanisms in self.users.items()}
        return State(self.topics, self.broker, users, frozenset(self.acls), self.quotas)

    def take(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._execute(step)

    def _execute(self, step: Step) -> None:
        match step:
            case CreateTopic(name, topic):
                assert name not in self.topics
                partitions = topic.partitions or DEFAULT_PARTITIONS
                self.topics[name] = Topic(partitions, topic.replication_factor or DEFAULT_FACTOR, topic.configs)
            case AddPartitions(name, before, after):
                assert self.topics[name].partitions == before < after
                self.topics[name] = replace(self.topics[name], partitions=after)
            case AlterConfigs(None, changes):
                self.broker = apply_changes(self.broker, changes)
            case AlterConfigs(str(name), changes):
                self.topics[name] = replace(
                    self.topics[name], configs=apply_changes(self.topics[name].configs, changes)
                )
            case SetPassword(user, mechanisms, _, is_new):
                assert is_new == (user not in self.users)
                iterations = {each: count or ITERATIONS_MIN for each, count in mechanisms.items()}
                self.users.setdefault(user, {}).update(iterations)
            case DeletePasswords(user, removed, is_all):
                for each in removed:
                    del self.users[user][each]
                assert is_all == (not self.users[user])
                if is_all:
                    del self.users[user]
            case AddAcls(acls):
                assert not self.acls & set(acls)
                self.acls |= set(acls)
            case RemoveAcls(acls):
                assert self.acls >= set(acls)
                self.acls -= set(acls)
            case AlterQuotas(entity, changes):
                self.quotas[entity] = apply_changes(self.quotas.get(entity, {}), changes)
                if not self.quotas[entity]:
                    del self.quotas[entity]
            case DeleteTopic(name):
                del self.topics[name]


def apply_changes(before: Mapping[str, Any], changes: Mapping[str, Change]) -> dict[str, Any]:
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
mechanisms = st.dictionaries(st.sampled_from(list(BY_NAME)), st.sampled_from([4096, 8192]), min_size=1)
wanted_mechanisms = st.dictionaries(st.sampled_from(list(BY_NAME)), st.sampled_from([None, 4096, 8192]), min_size=1)
acls = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.USER]),
    user_names,
    st.sampled_from(PatternType),
    user_names.map("User:{}".format),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from(Operation),
    st.sampled_from(Permission),
) | st.just(AclBinding(4, CLUSTER_NAME, PatternType.LITERAL, "User:x", "*", Operation.ALTER, Permission.DENY))
entities: st.SearchStrategy[Entity] = st.sampled_from(
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


def states() -> st.SearchStrategy[State]:
    """Generate the states of clusters."""
    return st.builds(
        State,
        st.dictionaries(names, st.builds(Topic, numbers, numbers, configs)),
        broker_configs,
        st.dictionaries(user_names, st.builds(User, mechanisms)),
        st.frozensets(acls, max_size=4),
        quotas,
    )


def wishes() -> st.SearchStrategy[State]:
    """Generate the desired states of files."""
    optional = st.none() | numbers
    return st.builds(
        State,
        st.none() | st.dictionaries(names, st.builds(Topic, optional, optional, configs)),
        st.none() | broker_configs,
        st.none() | st.dictionaries(user_names, st.builds(User, wanted_mechanisms, sources)),
        st.none() | st.frozensets(acls, max_size=4),
        st.none() | quotas,
    )
