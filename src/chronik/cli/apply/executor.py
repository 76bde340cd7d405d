"""Execution of a plan's steps, one after the other. The cluster applies each step completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from chronik.cli.apply.cluster_spec import PasswordSource
from chronik.cli.apply.plan_format import describe_step
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
from chronik.cli.passwords import read_password_file, read_password_variable
from chronik.client.admin import BROKER_DEFAULT, NewTopic, create_partitions, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.configs import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigTarget, alter_configs
from chronik.client.errors import ClientError
from chronik.client.security import AclFilter, add_acls, alter_quotas, delete_credentials, remove_acls, set_password
from chronik.errors import ChronikError
from chronik.protocol.errors import KafkaError
from chronik.security.sasl.scram_keys import ITERATIONS_MIN
from chronik.wording import pluralize

ACLS_PER_REQUEST: Final = 1000

Passwords = Mapping[str, str]
"""Passwords by user name."""

T = TypeVar("T")


class PlanStepError(ChronikError):
    """An error in a step of an apply plan; the previous steps stay in effect."""


def read_passwords(steps: Sequence[PlanStep], directory: Path) -> dict[str, str]:
    """Read the passwords of users that the plan creates or changes; raise ConfigError if one is missing.

    Args:
        steps: The steps of the plan.
        directory: The directory that paths of password files are relative to.
    """
    return {each.user: _read_password(each.source, directory) for each in steps if isinstance(each, SetPasswordStep)}


def _read_password(source: PasswordSource, beside: Path) -> str:
    return (
        read_password_variable(source.variable or "")
        if source.file is None
        else read_password_file(beside / source.file)
    )


def validate_steps(cluster: ClusterClient, steps: Sequence[PlanStep]) -> None:
    """Validate a plan's topic creations and config changes on the cluster without applying them."""
    for step in steps:
        if isinstance(step, CreateTopicStep):
            create_topics(cluster, [_build_new_topic(step)], validate_only=True)
    changes: dict[ConfigTarget, dict[str, str | None]] = {}
    for step in steps:
        if isinstance(step, AlterConfigsStep):
            changes.setdefault(_get_config_target(step), {}).update(_get_new_values(step))
    alter_configs(cluster, changes, validate_only=True)


def execute_plan(
    cluster: ClusterClient,
    steps: Sequence[PlanStep],
    passwords: Passwords,
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Apply all steps of the plan, calling `on_progress` after each; raise PlanStepError on failure."""
    for number, step in enumerate(steps):
        on_progress(number)
        try:
            execute_step(cluster, step, passwords)
        except (ClientError, KafkaError) as error:
            what = next(describe_step(step))
            message = (
                f"step failed after {number} of {pluralize(len(steps), 'step')}: {what}: {error}; "
                "run the command again to apply the rest"
            )
            raise PlanStepError(message) from error


def execute_step(cluster: ClusterClient, step: PlanStep, passwords: Passwords) -> None:
    """Apply one step of the plan to the cluster."""
    match step:
        case CreateTopicStep():
            create_topics(cluster, [_build_new_topic(step)])
        case AddPartitionsStep(topic, _, after):
            create_partitions(cluster, topic, after)
        case AlterConfigsStep():
            alter_configs(cluster, {_get_config_target(step): _get_new_values(step)})
        case SetPasswordStep(user, mechanisms):
            for iterations in dict.fromkeys(mechanisms.values()):
                names = [each for each, count in mechanisms.items() if count == iterations]
                set_password(cluster, user, passwords[user], names, iterations or ITERATIONS_MIN)
        case DeleteCredentialsStep(user, removed):
            delete_credentials(cluster, user, removed)
        case AddAclsStep(acls):
            for chunk in _split_into_chunks(acls):
                add_acls(cluster, chunk)
        case RemoveAclsStep(acls):
            for chunk in _split_into_chunks(acls):
                remove_acls(cluster, [AclFilter(*acl) for acl in chunk])
        case AlterQuotasStep(entity, quotas):
            alter_quotas(cluster, dict(entity), {key: _get_new_quota(change) for key, change in quotas.items()})
        case DeleteTopicStep(name):
            delete_topics(cluster, [name])


def _build_new_topic(step: CreateTopicStep) -> NewTopic:
    topic = step.topic
    factor = topic.replication_factor or BROKER_DEFAULT
    return NewTopic(step.name, topic.partitions or BROKER_DEFAULT, factor, topic.configs)


def _get_config_target(step: AlterConfigsStep) -> ConfigTarget:
    return ConfigTarget(BROKER_RESOURCE, "") if step.topic is None else ConfigTarget(TOPIC_RESOURCE, step.topic)


def _get_new_values(step: AlterConfigsStep) -> dict[str, str | None]:
    return {key: None if each.after is None else str(each.after) for key, each in step.changes.items()}


def _get_new_quota(change: ValueChange) -> float | None:
    return None if change.after is None else float(change.after)


def _split_into_chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), ACLS_PER_REQUEST):
        yield items[start : start + ACLS_PER_REQUEST]
