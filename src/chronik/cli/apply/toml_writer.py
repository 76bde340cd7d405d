"""The state of a cluster as a TOML file. Applying the file to the same cluster changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from chronik.cli.acls import ANY_HOST, RESOURCE_TYPES, format_enum
from chronik.cli.apply.cluster_spec import ClusterSpec, ConfigValues, QuotaEntityKey, TopicSpec, UserSpec
from chronik.cli.apply.toml_document import format_toml_key, format_toml_string
from chronik.client.security import AclBinding
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType
from chronik.security.sasl.scram_keys import ITERATIONS_MIN

_UNQUOTED_VALUE: Final = re.compile("true|false|0|-?[1-9][0-9]{0,17}")
"""Pattern of config values that TOML represents without quotes: booleans and integers.

Their text is identical in TOML and Kafka.
"""

_KEYS_BY_RESOURCE_TYPE: Final = {kind: name for name, kind in RESOURCE_TYPES.items()}


def spec_to_toml(state: ClusterSpec) -> str:
    return "\n".join(_format_spec_lines(state)) + "\n"


def _format_spec_lines(state: ClusterSpec) -> Iterator[str]:
    # Empty arrays of tables need an explicit key, and TOML requires it before the first table.
    if state.acls is not None and not state.acls:
        yield "acls = []"
    if state.quotas is not None and not state.quotas:
        yield "quotas = []"
    if state.broker is not None:
        yield from ("", "[broker]", *_format_config_lines(state.broker))
    if state.topics is not None:
        yield from ("", "[topics]")
        for name, topic in sorted(state.topics.items()):
            yield from _format_topic_lines(name, topic)
    if state.users is not None:
        yield from ("", "[users]")
        for name, user in sorted(state.users.items()):
            yield from _format_user_lines(name, user)
    for group in _group_by_operation(state.acls or ()):
        yield from _format_acl_lines(group)
    for entity, quotas in (state.quotas or {}).items():
        yield from _format_quota_lines(entity, quotas)


def _format_config_lines(configs: ConfigValues) -> Iterator[str]:
    for key, value in sorted(configs.items()):
        yield f"{format_toml_key(key)} = {value if _UNQUOTED_VALUE.fullmatch(value) else format_toml_string(value)}"


def _format_topic_lines(name: str, topic: TopicSpec) -> Iterator[str]:
    yield from ("", f"[topics.{format_toml_key(name)}]")
    if topic.partitions is not None:
        yield f"partitions = {topic.partitions}"
    if topic.replication_factor is not None:
        yield f"replication_factor = {topic.replication_factor}"
    if topic.configs:
        yield f"configs = {{ {', '.join(_format_config_lines(topic.configs))} }}"


def _format_user_lines(name: str, user: UserSpec) -> Iterator[str]:
    yield from ("", f"[users.{format_toml_key(name)}]")
    if all(count in (None, ITERATIONS_MIN) for count in user.mechanisms.values()):
        yield f"mechanisms = {_format_string_array(user.mechanisms)}"
    else:
        pairs = (f"{each} = {count or ITERATIONS_MIN}" for each, count in user.mechanisms.items())
        yield f"mechanisms = {{ {', '.join(pairs)} }}"


def _group_by_operation(acls: Iterable[AclBinding]) -> Iterator[list[AclBinding]]:
    """Group ACLs that differ only in their operation."""

    def without_operation(acl: AclBinding) -> AclBinding:
        return acl._replace(operation=0)

    for _, some in groupby(sorted(acls, key=lambda acl: (without_operation(acl), acl)), without_operation):
        yield list(some)


def _format_acl_lines(group: list[AclBinding]) -> Iterator[str]:
    acl = group[0]
    yield from ("", "[[acls]]", f"principal = {format_toml_string(acl.principal)}")
    if acl.resource_type == AclResourceType.CLUSTER:
        yield "cluster = true"
    else:
        yield f"{_KEYS_BY_RESOURCE_TYPE[AclResourceType(acl.resource_type)]} = {format_toml_string(acl.name)}"
    if acl.pattern_type == PatternType.PREFIXED:
        yield 'pattern = "prefixed"'
    yield f"operations = {_format_string_array(format_enum(AclOperation, each.operation) for each in group)}"
    if acl.host != ANY_HOST:
        yield f"host = {format_toml_string(acl.host)}"
    if acl.permission == AclPermission.DENY:
        yield 'permission = "deny"'


def _format_quota_lines(entity: QuotaEntityKey, quotas: Mapping[str, float]) -> Iterator[str]:
    yield from ("", "[[quotas]]")
    for kind, name in entity:
        key = kind.replace("-", "_")
        yield f"default_{key} = true" if name is None else f"{key} = {format_toml_string(name)}"
    for key, value in quotas.items():
        yield f"{key} = {int(value) if value.is_integer() else repr(value)}"


def _format_string_array(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(format_toml_string, texts))}]"
