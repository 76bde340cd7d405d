"""Topics, brokers and groups as the three config APIs name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Protocol, TypeVar

from chronik.api.shared.context import Services
from chronik.configs.checking import check_broker_configs, check_topic_config
from chronik.metadata.commands import CLUSTER_DEFAULT, UpdateBrokerConfig, UpdateGroupConfig, UpdateTopicConfig
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError

BROKER_ID_DIGITS_MAX = 10
"""As many as an int32 has: to read a number of 32,000 digits takes a while, and Python refuses to."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    """Has no configs here: there is no telemetry."""
    GROUP = 32


NAMED_TWICE = KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


class Resource(Protocol):
    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


def each_once(resources: Iterable[R]) -> Iterator[tuple[R, bool]]:
    """With whether it is named only once: which of several changes of one resource is meant, nobody can say."""
    named: dict[tuple[int, str], list[R]] = {}
    for resource in resources:
        named.setdefault((resource.resource_type, resource.resource_name), []).append(resource)
    return ((found[0], len(found) == 1) for found in named.values())


def topic_named(services: Services, name: str) -> Topic:
    topic = services.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}")
    return topic


def broker_named(services: Services, name: str) -> int:
    """A broker's id; CLUSTER_DEFAULT for the empty name, which stands for all brokers."""
    if name == "":
        return CLUSTER_DEFAULT
    if not name.isdecimal() or len(name) > BROKER_ID_DIGITS_MAX or int(name) not in services.image.brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no broker {name!r}")
    return int(name)


async def change_configs(
    services: Services,
    resource_type: int,
    name: str,
    wanted: Mapping[str, str],
    delete: tuple[str, ...] = (),
    *,
    replace: bool,
    validate_only: bool,
) -> None:
    """Checks everything, then changes it by one command. Raises KafkaError."""
    if resource_type == ResourceType.TOPIC:
        topic = topic_named(services, name)
        for key, value in wanted.items():
            check_topic_config(key, value)
        kept = {} if replace else {key: value for key, value in topic.configs.items() if key not in delete}
        services.configs.check_together({**kept, **wanted})
        if not validate_only:
            await services.store.propose(UpdateTopicConfig(topic.id, dict(wanted), delete, replace))
    elif resource_type == ResourceType.BROKER:
        broker = broker_named(services, name)
        check_broker_configs(wanted, cluster_wide=broker == CLUSTER_DEFAULT)
        if not validate_only:
            await services.store.propose(UpdateBrokerConfig(broker, dict(wanted), delete, replace))
    elif resource_type == ResourceType.GROUP:
        _refuse_group_without_name(name)
        of_group = {} if replace else dict(services.image.group_configs.get(name, {}))
        for key in delete:
            of_group.pop(key, None)
        services.configs.check_group_configs(of_group | dict(wanted))
        if not validate_only:
            await services.store.propose(UpdateGroupConfig(name, dict(wanted), delete, replace))
    else:
        raise unknown_resource(resource_type)


def _refuse_group_without_name(name: str) -> None:
    if name == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def unknown_resource(resource_type: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} has no configs here")
