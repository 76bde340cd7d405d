"""Redaction of secrets in text. Free of I/O.

Values under secret names are redacted in place, and known secrets are redacted wherever they appear, in all their
encodings. In free text such as logs, everything that looks like a password, a token or a key is redacted as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from chronik.config import SECRET_WORDS
from chronik.configs.broker_key_lookup import find_broker_key

REDACTED: Final = "(hidden)"

SECRET_NAME_PARTS: Final = (
    *SECRET_WORDS,
    "credential",
    "private",
    "keystore.key",
    "key.pem",
    "hmac",
    "cookie",
    "authorization",
)

MIN_SUBSTRING_LENGTH: Final = 6
"""Minimum length of a secret that is redacted inside words; shorter secrets are redacted only as whole words."""

_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_TOKEN: Final = re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){1,4}")
_BEARER: Final = re.compile(r"\b(Bearer|Basic|Digest)\s+[^\s,;\"']+", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    r"""(?P<name>(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|private[_-]?key|jaas\.config)[\w.-]*
        ["']?\s*[=:]\s*)(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_USER_IN_URL: Final = re.compile(r"://[^/\s@:]+:[^/\s@]+@")


def is_secret_name(name: str) -> bool:
    """Return whether a setting with this name holds a secret."""
    lowered = name.lower()
    return any(word in lowered for word in SECRET_NAME_PARTS)


def is_secret_config(name: str) -> bool:
    """Return whether a broker config holds a secret; unknown configs count as secret."""
    key = find_broker_key(name)
    return key is None or key.is_sensitive or is_secret_name(name)


def redact_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config file with secrets redacted."""
    return {name: _redact_value(name, value) for name, value in raw.items()}


def _redact_value(name: str, value: Any) -> Any:
    if is_secret_name(name):
        return REDACTED
    if name == "broker" and isinstance(value, Mapping):
        return {key: REDACTED if is_secret_config(key) else _redact_text(each) for key, each in value.items()}
    if isinstance(value, Mapping):
        return redact_config(value)
    if isinstance(value, list):
        return [_redact_value(name, each) for each in value]
    return _redact_text(value)


def _redact_text(value: Any) -> Any:
    return redact_secret_patterns(value) if isinstance(value, str) else value


def find_secrets(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the secrets in the values of a config file or client settings."""
    for name, value in raw.items():
        if name == "broker" and isinstance(value, Mapping):
            yield from (str(each) for key, each in value.items() if is_secret_config(key))
            yield from find_secrets(value)
        elif isinstance(value, Mapping):
            yield from find_secrets(value)
        elif isinstance(value, list):
            yield from (secret for each in value if isinstance(each, Mapping) for secret in find_secrets(each))
        elif is_secret_name(name):
            yield str(value)
            yield from re.findall(r'"((?:[^"\\]|\\.)*)"', str(value))  # options of a JAAS config


class Redactor:
    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret.strip() for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(_pattern, longest_first))) if longest_first else None

    def redact(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        return redact_secret_patterns(text)


def redact_secret_patterns(text: str) -> str:
    """Redact texts that look like secrets: private keys, tokens, authorization headers and passwords."""
    text = _PRIVATE_KEY.sub(REDACTED, text)
    text = _TOKEN.sub(REDACTED, text)
    text = _BEARER.sub(lambda found: f"{found[1]} {REDACTED}", text)
    text = _USER_IN_URL.sub(f"://{REDACTED}@", text)
    return _ASSIGNED.sub(lambda found: found["name"] + _redacted_with_quotes(found["value"]), text)


def _redacted_with_quotes(value: str) -> str:
    """Return the redaction mark with the quotes of the value, so that JSON stays valid."""
    quote_mark = value[0] if value[0] in "\"'" else ""
    return f"{quote_mark}{REDACTED}{quote_mark}"


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a secret may appear: as is, by line, and escaped for Python, JSON, URLs and Base64."""
    for text in (secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= MIN_SUBSTRING_LENGTH)):
        yield text
        yield text.encode("unicode_escape").decode("ascii")
        yield json.dumps(text)[1:-1]
        yield quote(text, safe="")
        yield base64.b64encode(text.encode()).decode("ascii").rstrip("=")


def _pattern(form: str) -> str:
    return re.escape(form) if len(form) >= MIN_SUBSTRING_LENGTH else rf"(?<!\w){re.escape(form)}(?!\w)"
