"""Limits on the names, groups and configs of an import, checked before anything is proposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chronik.configs.validation import validate_config_sizes
from chronik.groups.config import GROUPS_MAX
from chronik.limits import (
    GROUP_ID_CHARACTERS_MAX,
    GROUP_PROTOCOL_CHARACTERS_MAX,
    IMPORT_SOURCE_CHARACTERS_MAX,
    TOPIC_NAME_CHARACTERS_MAX,
)
from chronik.metadata.commands.imports import ImportedGroup
from chronik.metadata.handlers.groups import GROUPS_WITH_CONFIGS_MAX
from chronik.metadata.image import Image
from chronik.protocol.errors import ErrorCode, KafkaError


def check_import_source(source: str) -> None:
    """Raise INVALID_REQUEST if the description of the source is too long."""
    if len(source) > IMPORT_SOURCE_CHARACTERS_MAX:
        message = f"The source of the import has {len(source)} characters; the limit is {IMPORT_SOURCE_CHARACTERS_MAX}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_imported_groups(image: Image, groups: Sequence[ImportedGroup], metadata_characters_max: int) -> None:
    """Raise KafkaError for the first group that the cluster would not accept from a client."""
    new = {group.group_id for group in groups} - image.groups.keys()
    if len(image.groups) + len(new) > GROUPS_MAX:
        message = (
            f"importing {len(new)} groups into a cluster with {len(image.groups)} exceeds the limit of {GROUPS_MAX}"
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    for group in groups:
        _check_group_id(group.group_id)
        if len(group.protocol_type) > GROUP_PROTOCOL_CHARACTERS_MAX:
            message = (
                f"group {group.group_id}: the protocol type has more than {GROUP_PROTOCOL_CHARACTERS_MAX} characters"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        for offset in group.offsets:
            if len(offset.topic) > TOPIC_NAME_CHARACTERS_MAX:
                message = f"group {group.group_id}: a topic name has more than {TOPIC_NAME_CHARACTERS_MAX} characters"
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            if len(offset.metadata or "") > metadata_characters_max:
                message = (
                    f"group {group.group_id}: the metadata of {offset.topic}-{offset.partition} has "
                    f"{len(offset.metadata or '')} characters; offset.metadata.max.bytes is {metadata_characters_max}"
                )
                raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, message)


def check_imported_configs(
    image: Image, of_groups: Mapping[str, Mapping[str, str]], of_cluster: Mapping[str, str]
) -> None:
    """Raise KafkaError if configs are too many or too large."""
    if len(image.group_configs) + len(of_groups.keys() - image.group_configs.keys()) > GROUPS_WITH_CONFIGS_MAX:
        message = f"at most {GROUPS_WITH_CONFIGS_MAX} groups may have configs"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    for group_id, configs in of_groups.items():
        _check_group_id(group_id)
        validate_config_sizes(configs, configs)
    validate_config_sizes(of_cluster, of_cluster)


def _check_group_id(group_id: str) -> None:
    if len(group_id) > GROUP_ID_CHARACTERS_MAX:
        message = (
            f"group {group_id[:20]}… has an id of {len(group_id)} characters; the limit is {GROUP_ID_CHARACTERS_MAX}"
        )
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, message)
