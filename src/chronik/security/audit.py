"""Audit log: denied requests, failed logins and administrative changes, as JSON lines of the logger `chronik.audit`.

Names are untrusted: they are truncated and escaped as JSON. Record contents are never logged. The handler of
`chronik.log_output` limits the rate per message template, so each event type has a fixed template with arguments. In
the JSON log format, the fields of an event are merged into the log line.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from chronik.escaping import to_json_text, truncate_text
from chronik.log_output import JSON_MESSAGE
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import ConnectedClient

logger = logging.getLogger("chronik.audit")

NAME_CHARACTERS_MAX: Final = 200
"""Maximum characters of a name in an audit record. Even with JSON escapes, the name is shorter than the log's limit, at
which truncation would break the JSON."""

LIST_CHARACTERS_MAX: Final = 380
"""Maximum characters of the list of changed objects in an audit record. Objects beyond it are only counted."""

_CLIENT_FIELDS: Final = '"principal": %s, "host": %s'
DENIED_TEMPLATE: Final = (
    f'{{"event": "refused", {_CLIENT_FIELDS}, "api": %s, "operation": %s, "resource": %s, "name": %s}}'
)
CHANGED_TEMPLATE: Final = (
    f'{{"event": "changed", {_CLIENT_FIELDS}, "api": "API", "changed": %s, "more": %d, "failed": %d}}'
)

FAILED_LOGIN_TEMPLATE: Final = f'{{"event": "login refused", {_CLIENT_FIELDS}, "api": %s}}'


def log_denied_request(
    peer: ConnectedClient, api: str, operation: AclOperation, resource: AclResourceType, name: str
) -> None:
    """Log that a request was denied because the principal lacks the permission."""
    if logger.isEnabledFor(logging.INFO):
        fields = (
            str(peer.principal),
            peer.host,
            api,
            to_kafka_enum_name(operation),
            to_kafka_enum_name(resource),
            name,
        )
        logger.info(DENIED_TEMPLATE, *map(_quote_text, fields), extra=JSON_MESSAGE)


def log_changes(peer: ConnectedClient, api: str, names: Sequence[str], count: int, failures: int) -> None:
    """Log a request that changed objects: some of their names, their number, and the number of failed changes."""
    if logger.isEnabledFor(logging.INFO):
        named: list[str] = []
        size = 0
        for name in names:
            shown = _quote_text(name)
            size += len(shown) + 2
            if size > LIST_CHARACTERS_MAX:
                break
            named.append(shown)
        client = _quote_text(str(peer.principal)), _quote_text(peer.host)
        arguments = (*client, f"[{', '.join(named)}]", count - len(named), failures)
        logger.info(CHANGED_TEMPLATE.replace("API", api), *arguments, extra=JSON_MESSAGE)


def log_failed_login(peer: ConnectedClient, api: str) -> None:
    """Log a failed login, such as a wrong password or an unknown user."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(
            FAILED_LOGIN_TEMPLATE,
            _quote_text(str(peer.principal)),
            _quote_text(peer.host),
            _quote_text(api),
            extra=JSON_MESSAGE,
        )


def to_kafka_enum_name(number: IntEnum) -> str:
    """Return an enum member's name as Kafka's tools write it, such as `DescribeConfigs`."""
    return "".join(map(str.capitalize, number.name.split("_")))


def _quote_text(text: str) -> str:
    shown = to_json_text(truncate_text(text, NAME_CHARACTERS_MAX))
    return shown if len(shown) <= LIST_CHARACTERS_MAX else to_json_text(truncate_text(text, NAME_CHARACTERS_MAX // 4))
