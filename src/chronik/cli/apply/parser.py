"""Parsing of the file that describes a cluster. The whole file is validated before the cluster is contacted."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chronik.cli.acls import ANY_HOST, RESOURCE_TYPES, parse_operation
from chronik.cli.apply.cluster_spec import (
    INTERNAL_PREFIX,
    TRANSIENT_CONFIGS,
    ClusterSpec,
    PasswordSource,
    QuotaEntityKey,
    TopicSpec,
    UserSpec,
)
from chronik.cli.apply.toml_document import TomlPath, TomlValidator
from chronik.cli.arguments import InvalidInput
from chronik.cli.quotas import ENTITY_TYPES, QUOTA_KEYS
from chronik.client.security import AclBinding
from chronik.configs.broker_key_lookup import find_broker_key, iter_broker_keys
from chronik.configs.keys import TOPIC_KEYS, ConfigKey, UpdateMode
from chronik.errors import ConfigError
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.metadata.handlers.security import USER_NAME_CHARACTERS_MAX
from chronik.metadata.names import find_topic_name_error, format_topic_metric_name
from chronik.metadata.records import Acl
from chronik.protocol.errors import KafkaError
from chronik.protocol.permissions import CLUSTER_NAME, AclResourceType
from chronik.security.acls import AclPermission, PatternType, find_acl_error
from chronik.security.quotas.entities import QuotaValueChange, validate_changes, validate_entity
from chronik.security.sasl.scram_keys import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS_BY_NAME
from chronik.wording import format_spelling_suggestion

REPLICATION_FACTOR_MAX: Final = 2**15 - 1
"""Maximum replication factor: the maximum of an int16, the field's type in the protocol."""

PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
PERMISSIONS: Final = {"allow": AclPermission.ALLOW, "deny": AclPermission.DENY}
SCHEMA_CONFIG: Final = "columnar.schema"
"""The topic config with the schema of the topic's table."""
_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def load_spec(path: Path) -> ClusterSpec:
    """Parse a spec file; raise ConfigError if it cannot be read or is invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not valid TOML: it is not UTF-8") from None
    return parse_spec(text, str(path))


def parse_spec(text: str, name: str) -> ClusterSpec:
    """Parse the text of a spec file; raise ConfigError with the line number of the first error."""
    parser = _SpecParser(text, name)
    return parser.state(parser.parse())


class _SpecParser(TomlValidator):
    def state(self, found: Mapping[str, Any]) -> ClusterSpec:
        parts: dict[str, Callable[[TomlPath, Any], Any]] = {
            "topics": self._parse_topics,
            "broker": self._parse_broker_configs,
            "users": self._parse_users,
            "acls": self._acls,
            "quotas": self._parse_quotas,
        }
        self.reject_unknown_keys((), found, parts)
        return ClusterSpec(**{key: parts[key]((key,), value) for key, value in found.items()})

    # Topics and configs

    def _parse_topics(self, place: TomlPath, value: Any) -> dict[str, TopicSpec]:
        topics: dict[str, TopicSpec] = {}
        names_by_metric_name: dict[str, str] = {}
        for name, each in self.require_table(place, value).items():
            here = (*place, name)
            if problem := find_topic_name_error(name):
                raise self.build_validation_error(here, problem)
            if name.startswith(INTERNAL_PREFIX):
                raise self.build_validation_error(here, f"topics whose names start with {INTERNAL_PREFIX} are internal")
            if (other := names_by_metric_name.setdefault(format_topic_metric_name(name), name)) != name:
                raise self.build_validation_error(
                    here, f"differs from topic {other} only in '.' and '_', which Kafka does not allow"
                )
            topics[name] = self._parse_topic(here, each)
        return topics

    def _parse_topic(self, place: TomlPath, value: Any) -> TopicSpec:
        table = self.require_table(place, value, ("partitions", "replication_factor", "configs", "schema"))
        configs = self._parse_configs((*place, "configs"), table.get("configs", {}), self._find_topic_config_key)
        if "schema" in table:
            configs[SCHEMA_CONFIG] = self._parse_schema((*place, "schema"), table["schema"])
        return TopicSpec(
            self._parse_optional_int(place, table, "partitions", TOPIC_PARTITIONS_MAX),
            self._parse_optional_int(place, table, "replication_factor", REPLICATION_FACTOR_MAX),
            configs,
        )

    def _parse_schema(self, place: TomlPath, value: Any) -> str:
        """Return the schema of a topic's table as a config. It is checked if the pipeline's libraries are installed."""
        document = self.require_table(place, value)
        if importlib.util.find_spec("pyarrow") is not None:
            from chronik.pipeline.tables.values.json_decoder import check_codecs
            from chronik.pipeline.tables.values.table_schema import parse_schema_document

            try:
                check_codecs(parse_schema_document(document))
            except ConfigError as error:
                raise self.build_validation_error(place, str(error)) from None
        return json.dumps(document, separators=(",", ":"), default=str)

    def _parse_optional_int(self, place: TomlPath, table: Mapping[str, Any], key: str, high: int) -> int | None:
        return self.require_int((*place, key), table[key], 1, high) if key in table else None

    def _parse_broker_configs(self, place: TomlPath, value: Any) -> dict[str, str]:
        return self._parse_configs(place, value, self._find_broker_config_key)

    def _parse_configs(
        self, place: TomlPath, value: Any, find_key: Callable[[TomlPath, str], ConfigKey]
    ) -> dict[str, str]:
        configs: dict[str, str] = {}
        for name, given in _flatten_toml_table(self.require_table(place, value)):
            here = (*place, name)
            key = find_key(here, name)
            if name in TRANSIENT_CONFIGS:
                raise self.build_validation_error(here, "is set by partition reassignments and cannot be set in a file")
            configs[name] = self._format_config_value(here, given)
            if expected := key.check(configs[name]):
                raise self.build_unexpected_value_error(here, given, expected)
        return configs

    def _find_topic_config_key(self, place: TomlPath, name: str) -> ConfigKey:
        if name not in TOPIC_KEYS:
            raise self.build_validation_error(
                place, f"unknown topic config{format_spelling_suggestion(name, TOPIC_KEYS)}"
            )
        return TOPIC_KEYS[name]

    def _find_broker_config_key(self, place: TomlPath, name: str) -> ConfigKey:
        key = find_broker_key(name)
        if key is None:
            hint = format_spelling_suggestion(name, (each.name for each in iter_broker_keys()))
            raise self.build_validation_error(place, f"unknown broker config{hint}")
        if key.is_sensitive:
            raise self.build_validation_error(place, "is sensitive and cannot be set in this file")
        if key.update_mode is not UpdateMode.CLUSTER_WIDE or key.per_listener:
            raise self.build_validation_error(place, "cannot be changed dynamically for all brokers")
        return key

    def _format_config_value(self, place: TomlPath, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return ",".join(value)
        if isinstance(value, str | int | float):
            return str(value)
        raise self.build_unexpected_value_error(place, value, "a string, a number, a boolean, or an array of strings")

    # Users

    def _parse_users(self, place: TomlPath, value: Any) -> dict[str, UserSpec]:
        users = {}
        for name, each in self.require_table(place, value).items():
            here = (*place, name)
            if not 0 < len(name) <= USER_NAME_CHARACTERS_MAX:
                raise self.build_validation_error(
                    here, f"user names must have 1 to {USER_NAME_CHARACTERS_MAX} characters"
                )
            if isinstance(each, dict) and "password" in each:
                raise self.build_validation_error(
                    (*here, "password"),
                    "passwords are not allowed in this file: use password_file or password_env",
                )
            table = self.require_table(here, each, ("mechanisms", "password_file", "password_env"))
            users[name] = UserSpec(self._parse_mechanisms(here, table), self._parse_password(here, table))
        return users

    def _parse_mechanisms(self, place: TomlPath, table: Mapping[str, Any]) -> dict[str, int | None]:
        here = (*place, "mechanisms")
        given = table.get("mechanisms", list(MECHANISMS_BY_NAME))
        if isinstance(given, dict):
            self.reject_unknown_keys(here, given, MECHANISMS_BY_NAME)
            found: dict[str, int | None] = {
                name: self.require_int((*here, name), each, ITERATIONS_MIN, ITERATIONS_MAX)
                for name, each in given.items()
            }
        else:
            found = dict.fromkeys(self.require_choices(here, given, MECHANISMS_BY_NAME))
        if not found:
            raise self.build_unexpected_value_error(here, given, f"at least one of {', '.join(MECHANISMS_BY_NAME)}")
        return found

    def _parse_password(self, place: TomlPath, table: Mapping[str, Any]) -> PasswordSource | None:
        if "password_file" in table and "password_env" in table:
            raise self.build_validation_error((*place, "password_env"), "cannot be combined with password_file")
        if "password_file" in table:
            return PasswordSource(file=self.require_string((*place, "password_file"), table["password_file"]))
        if "password_env" not in table:
            return None
        # An invalid value is not shown, because it may be the password itself.
        name = table["password_env"]
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise self.build_validation_error((*place, "password_env"), "expected the name of an environment variable")
        return PasswordSource(variable=name)

    # ACLs

    def _acls(self, place: TomlPath, value: Any) -> frozenset[AclBinding]:
        return frozenset(
            acl for here, each in self.require_tables(place, value) for acl in self._parse_acl_bindings(here, each)
        )

    def _parse_acl_bindings(self, place: TomlPath, value: Any) -> Iterator[AclBinding]:
        known = ("principal", "operations", *RESOURCE_TYPES, "cluster", "pattern", "host", "permission")
        table = self.require_table(place, value, known)
        for key in ("principal", "operations"):
            if key not in table:
                raise self.build_validation_error(place, f"{key} is missing")
        kind, name = self._parse_resource(place, table)
        pattern = PATTERNS[self.require_choice((*place, "pattern"), table.get("pattern", "literal"), PATTERNS)]
        permission = PERMISSIONS[
            self.require_choice((*place, "permission"), table.get("permission", "allow"), PERMISSIONS)
        ]
        host = self.require_string((*place, "host"), table.get("host", ANY_HOST))
        principal = self.require_string((*place, "principal"), table["principal"])
        for operation in self._parse_operations((*place, "operations"), table["operations"]):
            acl = AclBinding(kind, name, pattern, principal, host, operation, permission)
            if problem := find_acl_error(Acl(*acl)):
                raise self.build_validation_error(place, problem)
            yield acl

    def _parse_resource(self, place: TomlPath, table: Mapping[str, Any]) -> tuple[int, str]:
        named = [key for key in (*RESOURCE_TYPES, "cluster") if key in table]
        if len(named) != 1:
            raise self.build_validation_error(place, f"expected one of {', '.join(RESOURCE_TYPES)} and cluster")
        here = (*place, named[0])
        if named[0] != "cluster":
            return RESOURCE_TYPES[named[0]], self.require_string(here, table[named[0]])
        if table["cluster"] is not True:
            raise self.build_unexpected_value_error(here, table["cluster"], "true")
        if "pattern" in table:
            raise self.build_validation_error((*place, "pattern"), "cannot be combined with cluster")
        return AclResourceType.CLUSTER, CLUSTER_NAME

    def _parse_operations(self, place: TomlPath, value: Any) -> list[int]:
        if not isinstance(value, list) or not value:
            raise self.build_unexpected_value_error(
                place, value, 'an array of operations, such as ["Read", "Describe"]'
            )
        try:
            return [parse_operation(self.require_string(place, each)) for each in value]
        except InvalidInput as error:
            raise self.build_validation_error(place, str(error)) from None

    # Quotas

    def _parse_quotas(self, place: TomlPath, value: Any) -> dict[QuotaEntityKey, dict[str, float]]:
        found: dict[QuotaEntityKey, dict[str, float]] = {}
        for here, each in self.require_tables(place, value):
            names = {kind.replace("-", "_"): kind for kind in ENTITY_TYPES}
            table = self.require_table(here, each, (*names, *(f"default_{name}" for name in names), *QUOTA_KEYS))
            entity = tuple(sorted(self._parse_entity(here, table, names).items()))
            if entity in found:
                raise self.build_validation_error(here, "duplicate entry for the same user, client id or IP address")
            found[entity] = self._parse_quota_values(here, table, entity)
        return found

    def _parse_entity(
        self, place: TomlPath, table: Mapping[str, Any], names: Mapping[str, str]
    ) -> dict[str, str | None]:
        entity: dict[str, str | None] = {}
        for name, kind in names.items():
            default = f"default_{name}"
            if name in table and default in table:
                raise self.build_validation_error((*place, default), f"cannot be combined with {name}")
            if default in table and table[default] is not True:
                raise self.build_unexpected_value_error((*place, default), table[default], "true")
            if name in table or default in table:
                entity[kind] = self.require_string((*place, name), table[name]) if name in table else None
        if not entity:
            raise self.build_validation_error(
                place, f"expected one of {', '.join(names)}, or a default such as default_user"
            )
        try:
            validate_entity(list(entity.items()))
        except KafkaError as error:
            raise self.build_validation_error(place, error.message) from None
        return entity

    def _parse_quota_values(
        self, place: TomlPath, table: Mapping[str, Any], entity: QuotaEntityKey
    ) -> dict[str, float]:
        rates = {
            key: self._parse_quota_value((*place, key), table[key], entity, key) for key in QUOTA_KEYS if key in table
        }
        if not rates:
            raise self.build_validation_error(place, f"expected at least one of {', '.join(QUOTA_KEYS)}")
        return rates

    def _parse_quota_value(self, place: TomlPath, value: Any, entity: QuotaEntityKey, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.build_unexpected_value_error(place, value, "a number greater than 0")
        try:
            validate_changes(validate_entity(entity), [QuotaValueChange(key, float(value))])
        except KafkaError as error:
            raise self.build_validation_error(place, error.message) from None
        except OverflowError:
            raise self.build_unexpected_value_error(place, value, "a smaller number") from None
        return float(value)


def _flatten_toml_table(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of nested tables.

    TOML parses an unquoted `retention.ms = 1` as nested tables.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten_toml_table(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
