"""Parsing of the file that describes a cluster. The whole file is validated before the cluster is contacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chronik.cli.acls import EVERY_HOST, RESOURCES, parse_operation
from chronik.cli.applying.checked_toml import CheckedToml
from chronik.cli.applying.places import Place
from chronik.cli.applying.state import INTERNAL_PREFIX, PASSING, Entity, PasswordSource, State, Topic, User
from chronik.cli.arguments import WrongInput
from chronik.cli.quotas import KEYS, KINDS
from chronik.client.security.acls import AclBinding
from chronik.configs.keys import TOPIC_KEYS, ConfigKey, Scope
from chronik.configs.known import all_broker_keys, broker_key
from chronik.errors import ConfigError
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.metadata.handlers.users import USER_NAME_CHARACTERS_MAX
from chronik.metadata.names import metric_name, name_fault
from chronik.metadata.records import Acl
from chronik.protocol.errors import KafkaError
from chronik.protocol.permissions import CLUSTER_NAME, ResourceType
from chronik.security.acls import PatternType, Permission, fault_of
from chronik.security.quotas.entities import Change, checked_changes, checked_entity
from chronik.security.sasl.scram_keys import BY_NAME, ITERATIONS_MAX, ITERATIONS_MIN
from chronik.wording import suggestion

REPLICATION_FACTOR_MAX: Final = 2**15 - 1
"""Maximum value of an int16, the field's type in the protocol."""

PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
PERMISSIONS: Final = {"allow": Permission.ALLOW, "deny": Permission.DENY}
_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def read_file(path: Path) -> State:
    """Parse a file; raise ConfigError if it cannot be read or is invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not valid TOML: it is not UTF-8") from None
    return parse_state(text, str(path))


def parse_state(text: str, name: str) -> State:
    """Parse the text of a file; raise ConfigError with the line of the first error."""
    parser = _StateParser(text, name)
    return parser.state(parser.parsed())


class _StateParser(CheckedToml):
    def state(self, found: Mapping[str, Any]) -> State:
        parts: dict[str, Callable[[Place, Any], Any]] = {
            "topics": self._topics,
            "broker": self._broker,
            "users": self._users,
            "acls": self._acls,
            "quotas": self._quotas,
        }
        self.refuse_others((), found, parts)
        return State(**{key: parts[key]((key,), value) for key, value in found.items()})

    # Topics and configs

    def _topics(self, place: Place, value: Any) -> dict[str, Topic]:
        topics: dict[str, Topic] = {}
        names_by_metric_name: dict[str, str] = {}
        for name, each in self.table(place, value).items():
            here = (*place, name)
            if problem := name_fault(name):
                raise self.wrong(here, problem)
            if name.startswith(INTERNAL_PREFIX):
                raise self.wrong(here, f"topics whose names start with {INTERNAL_PREFIX} are internal")
            if (other := names_by_metric_name.setdefault(metric_name(name), name)) != name:
                raise self.wrong(here, f"differs from topic {other} only in '.' and '_', which Kafka does not allow")
            topics[name] = self._topic(here, each)
        return topics

    def _topic(self, place: Place, value: Any) -> Topic:
        table = self.table(place, value, ("partitions", "replication_factor", "configs"))
        return Topic(
            self._optional_int(place, table, "partitions", TOPIC_PARTITIONS_MAX),
            self._optional_int(place, table, "replication_factor", REPLICATION_FACTOR_MAX),
            self._configs((*place, "configs"), table.get("configs", {}), self._topic_key),
        )

    def _optional_int(self, place: Place, table: Mapping[str, Any], key: str, high: int) -> int | None:
        return self.whole((*place, key), table[key], 1, high) if key in table else None

    def _broker(self, place: Place, value: Any) -> dict[str, str]:
        return self._configs(place, value, self._broker_key)

    def _configs(self, place: Place, value: Any, find_key: Callable[[Place, str], ConfigKey]) -> dict[str, str]:
        configs: dict[str, str] = {}
        for name, given in _flatten(self.table(place, value)):
            here = (*place, name)
            key = find_key(here, name)
            if name in PASSING:
                raise self.wrong(here, "is set by partition reassignments and cannot be set in a file")
            configs[name] = self._config_text(here, given)
            if expected := key.check(configs[name]):
                raise self.unexpected(here, given, expected)
        return configs

    def _topic_key(self, place: Place, name: str) -> ConfigKey:
        if name not in TOPIC_KEYS:
            raise self.wrong(place, f"unknown topic config{suggestion(name, TOPIC_KEYS)}")
        return TOPIC_KEYS[name]

    def _broker_key(self, place: Place, name: str) -> ConfigKey:
        key = broker_key(name)
        if key is None:
            hint = suggestion(name, (each.name for each in all_broker_keys()))
            raise self.wrong(place, f"unknown broker config{hint}")
        if key.sensitive:
            raise self.wrong(place, "is sensitive and cannot be set in this file")
        if key.scope is not Scope.CLUSTER_WIDE or key.per_listener:
            raise self.wrong(place, "cannot be changed dynamically for all brokers")
        return key

    def _config_text(self, place: Place, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return ",".join(value)
        if isinstance(value, str | int | float):
            return str(value)
        raise self.unexpected(place, value, "a string, a number, a boolean, or an array of strings")

    # Users

    def _users(self, place: Place, value: Any) -> dict[str, User]:
        users = {}
        for name, each in self.table(place, value).items():
            here = (*place, name)
            if not 0 < len(name) <= USER_NAME_CHARACTERS_MAX:
                raise self.wrong(here, f"user names must have 1 to {USER_NAME_CHARACTERS_MAX} characters")
            if isinstance(each, dict) and "password" in each:
                raise self.wrong(
                    (*here, "password"),
                    "passwords are not allowed in this file: use password_file or password_env",
                )
            table = self.table(here, each, ("mechanisms", "password_file", "password_env"))
            users[name] = User(self._mechanisms(here, table), self._password(here, table))
        return users

    def _mechanisms(self, place: Place, table: Mapping[str, Any]) -> dict[str, int | None]:
        here = (*place, "mechanisms")
        given = table.get("mechanisms", list(BY_NAME))
        if isinstance(given, dict):
            self.refuse_others(here, given, BY_NAME)
            found: dict[str, int | None] = {
                name: self.whole((*here, name), each, ITERATIONS_MIN, ITERATIONS_MAX) for name, each in given.items()
            }
        else:
            found = dict.fromkeys(self.choices(here, given, BY_NAME))
        if not found:
            raise self.unexpected(here, given, f"at least one of {', '.join(BY_NAME)}")
        return found

    def _password(self, place: Place, table: Mapping[str, Any]) -> PasswordSource | None:
        if "password_file" in table and "password_env" in table:
            raise self.wrong((*place, "password_env"), "cannot be combined with password_file")
        if "password_file" in table:
            return PasswordSource(file=self.text((*place, "password_file"), table["password_file"]))
        if "password_env" not in table:
            return None
        # An invalid value is not shown, because it may be the password itself.
        name = table["password_env"]
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise self.wrong((*place, "password_env"), "expected the name of an environment variable")
        return PasswordSource(variable=name)

    # ACLs

    def _acls(self, place: Place, value: Any) -> frozenset[AclBinding]:
        return frozenset(acl for here, each in self.array(place, value) for acl in self._bindings(here, each))

    def _bindings(self, place: Place, value: Any) -> Iterator[AclBinding]:
        known = ("principal", "operations", *RESOURCES, "cluster", "pattern", "host", "permission")
        table = self.table(place, value, known)
        for key in ("principal", "operations"):
            if key not in table:
                raise self.wrong(place, f"{key} is missing")
        kind, name = self._resource(place, table)
        pattern = PATTERNS[self.choice((*place, "pattern"), table.get("pattern", "literal"), PATTERNS)]
        permission = PERMISSIONS[self.choice((*place, "permission"), table.get("permission", "allow"), PERMISSIONS)]
        host = self.text((*place, "host"), table.get("host", EVERY_HOST))
        principal = self.text((*place, "principal"), table["principal"])
        for operation in self._operations((*place, "operations"), table["operations"]):
            acl = AclBinding(kind, name, pattern, principal, host, operation, permission)
            if problem := fault_of(Acl(*acl)):
                raise self.wrong(place, problem)
            yield acl

    def _resource(self, place: Place, table: Mapping[str, Any]) -> tuple[int, str]:
        named = [key for key in (*RESOURCES, "cluster") if key in table]
        if len(named) != 1:
            raise self.wrong(place, f"expected one of {', '.join(RESOURCES)} and cluster")
        here = (*place, named[0])
        if named[0] != "cluster":
            return RESOURCES[named[0]], self.text(here, table[named[0]])
        if table["cluster"] is not True:
            raise self.unexpected(here, table["cluster"], "true")
        if "pattern" in table:
            raise self.wrong((*place, "pattern"), "cannot be combined with cluster")
        return ResourceType.CLUSTER, CLUSTER_NAME

    def _operations(self, place: Place, value: Any) -> list[int]:
        if not isinstance(value, list) or not value:
            raise self.unexpected(place, value, 'an array of operations, such as ["Read", "Describe"]')
        try:
            return [parse_operation(self.text(place, each)) for each in value]
        except WrongInput as error:
            raise self.wrong(place, str(error)) from None

    # Quotas

    def _quotas(self, place: Place, value: Any) -> dict[Entity, dict[str, float]]:
        found: dict[Entity, dict[str, float]] = {}
        for here, each in self.array(place, value):
            names = {kind.replace("-", "_"): kind for kind in KINDS}
            table = self.table(here, each, (*names, *(f"default_{name}" for name in names), *KEYS))
            entity = tuple(sorted(self._entity(here, table, names).items()))
            if entity in found:
                raise self.wrong(here, "duplicate entry for the same user, client id or IP address")
            found[entity] = self._quota_values(here, table, entity)
        return found

    def _entity(self, place: Place, table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str | None]:
        entity: dict[str, str | None] = {}
        for name, kind in names.items():
            default = f"default_{name}"
            if name in table and default in table:
                raise self.wrong((*place, default), f"cannot be combined with {name}")
            if default in table and table[default] is not True:
                raise self.unexpected((*place, default), table[default], "true")
            if name in table or default in table:
                entity[kind] = self.text((*place, name), table[name]) if name in table else None
        if not entity:
            raise self.wrong(place, f"expected one of {', '.join(names)}, or a default such as default_user")
        try:
            checked_entity(list(entity.items()))
        except KafkaError as error:
            raise self.wrong(place, error.message) from None
        return entity

    def _quota_values(self, place: Place, table: Mapping[str, Any], entity: Entity) -> dict[str, float]:
        rates = {key: self._quota_value((*place, key), table[key], entity, key) for key in KEYS if key in table}
        if not rates:
            raise self.wrong(place, f"expected at least one of {', '.join(KEYS)}")
        return rates

    def _quota_value(self, place: Place, value: Any, entity: Entity, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.unexpected(place, value, "a number greater than 0")
        try:
            checked_changes(checked_entity(entity), [Change(key, float(value))])
        except KafkaError as error:
            raise self.wrong(place, error.message) from None
        except OverflowError:
            raise self.unexpected(place, value, "a smaller number") from None
        return float(value)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of nested tables: TOML parses an unquoted `retention.ms = 1` as nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
