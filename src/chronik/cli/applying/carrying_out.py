"""Execution of a plan's steps, one after the other. The cluster applies each step completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from chronik.cli.applying.showing import sentences
from chronik.cli.applying.state import PasswordSource
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
from chronik.cli.passwords import password_in_file, password_in_variable
from chronik.client.admin import BROKER_DEFAULT, NewTopic, create_partitions, create_topics, delete_topics
from chronik.client.cluster import Cluster
from chronik.client.configs import BROKER_RESOURCE, TOPIC_RESOURCE, Resource, alter_configs
from chronik.client.errors import ClientError
from chronik.client.security.acls import AclFilter, add_acls, remove_acls
from chronik.client.security.quotas import alter_quotas
from chronik.client.security.users import delete_passwords, set_password
from chronik.errors import ChronikError
from chronik.protocol.errors import KafkaError
from chronik.security.sasl.scram_keys import ITERATIONS_MIN
from chronik.wording import counted

ACLS_PER_REQUEST: Final = 1000

Passwords = Mapping[str, str]
"""Passwords by user name."""

T = TypeVar("T")


class PlanStepError(ChronikError):
    """A failed step of a plan. Earlier steps stay applied and are not part of the next plan."""


def passwords_for(steps: Sequence[Step], beside: Path) -> dict[str, str]:
    """Read the passwords that the steps need; raise ConfigError if one is missing.

    Args:
        steps: The steps of the plan.
        directory: The directory that paths of password files are relative to.
    """
    return {each.user: _password(each.source, beside) for each in steps if isinstance(each, SetPassword)}


def _password(source: PasswordSource, beside: Path) -> str:
    return (
        password_in_variable(source.variable or "") if source.file is None else password_in_file(beside / source.file)
    )


def check(cluster: Cluster, steps: Sequence[Step]) -> None:
    """Validate topic creations and config changes on the cluster before anything is changed."""
    for step in steps:
        if isinstance(step, CreateTopic):
            create_topics(cluster, [_new_topic(step)], validate_only=True)
    changes: dict[Resource, dict[str, str | None]] = {}
    for step in steps:
        if isinstance(step, AlterConfigs):
            changes.setdefault(_resource(step), {}).update(_new_values(step))
    alter_configs(cluster, changes, validate_only=True)


def carry_out(
    cluster: Cluster, steps: Sequence[Step], passwords: Passwords, tell: Callable[[int], None] = lambda _: None
) -> None:
    """Execute all steps, and report completed steps to `on_progress`; raise PlanStepError if one fails."""
    for number, step in enumerate(steps):
        tell(number)
        try:
            take(cluster, step, passwords)
        except (ClientError, KafkaError) as error:
            what = next(sentences(step))
            message = (
                f"step failed after {number} of {counted(len(steps), 'step')}: {what}: {error}; "
                "run the command again to apply the rest"
            )
            raise PlanStepError(message) from error


def take(cluster: Cluster, step: Step, passwords: Passwords) -> None:
    """Execute one step on the cluster."""
    match step:
        case CreateTopic():
            create_topics(cluster, [_new_topic(step)])
        case AddPartitions(topic, _, after):
            create_partitions(cluster, topic, after)
        case AlterConfigs():
            alter_configs(cluster, {_resource(step): _new_values(step)})
        case SetPassword(user, mechanisms):
            for iterations in dict.fromkeys(mechanisms.values()):
                names = [each for each, count in mechanisms.items() if count == iterations]
                set_password(cluster, user, passwords[user], names, iterations or ITERATIONS_MIN)
        case DeletePasswords(user, removed):
            delete_passwords(cluster, user, removed)
        case AddAcls(acls):
            for chunk in _chunks(acls):
                add_acls(cluster, chunk)
        case RemoveAcls(acls):
            for chunk in _chunks(acls):
                remove_acls(cluster, [AclFilter(*acl) for acl in chunk])
        case AlterQuotas(entity, quotas):
            alter_quotas(cluster, dict(entity), {key: _new_quota(change) for key, change in quotas.items()})
        case DeleteTopic(name):
            delete_topics(cluster, [name])


def _new_topic(step: CreateTopic) -> NewTopic:
    topic = step.topic
    factor = topic.replication_factor or BROKER_DEFAULT
    return NewTopic(step.name, topic.partitions or BROKER_DEFAULT, factor, topic.configs)


def _resource(step: AlterConfigs) -> Resource:
    return Resource(BROKER_RESOURCE, "") if step.topic is None else Resource(TOPIC_RESOURCE, step.topic)


def _new_values(step: AlterConfigs) -> dict[str, str | None]:
    return {key: None if each.after is None else str(each.after) for key, each in step.changes.items()}


def _new_quota(change: Change) -> float | None:
    return None if change.after is None else float(change.after)


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), ACLS_PER_REQUEST):
        yield items[start : start + ACLS_PER_REQUEST]
