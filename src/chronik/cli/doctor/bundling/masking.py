"""Takes secrets out of text. Pure.

Two ways, each of which would do for most: values under names that say they are secret are hidden where they stand; and
whatever is known to be a secret is hidden wherever it appears, in the forms in which it might. Text of unknown origin,
such as a log's, also loses what looks like a password, a token or a key.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from chronik.config import SECRET_WORDS
from chronik.configs.known import broker_key

HIDDEN: Final = "(hidden)"

WORDS: Final = (*SECRET_WORDS, "credential", "private", "keystore.key", "key.pem", "hmac", "cookie", "authorization")

SHORT: Final = 6
"""A secret that is shorter is hidden where it stands as a word: as a part of words it would be everywhere."""

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


def is_secret(name: str) -> bool:
    """Says whether a value under this name is a secret. A broker config that nobody knows may be one."""
    lowered = name.lower()
    return any(word in lowered for word in WORDS)


def is_secret_config(name: str) -> bool:
    """The same, of one in [broker]: Kafka knows which of its own are."""
    key = broker_key(name)
    return key is None or key.sensitive or is_secret(name)


def masked_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config file's values with the secret ones hidden."""
    return {name: _masked(name, value) for name, value in raw.items()}


def _masked(name: str, value: Any) -> Any:
    if is_secret(name):
        return HIDDEN
    if name == "broker" and isinstance(value, Mapping):
        return {key: HIDDEN if is_secret_config(key) else _text_free(each) for key, each in value.items()}
    if isinstance(value, Mapping):
        return masked_config(value)
    if isinstance(value, list):
        return [_masked(name, each) for each in value]
    return _text_free(value)


def _text_free(value: Any) -> Any:
    return looks_hidden(value) if isinstance(value, str) else value


def secrets_in(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is secret in a file of configs or of client settings."""
    for name, value in raw.items():
        if name == "broker" and isinstance(value, Mapping):
            yield from (str(each) for key, each in value.items() if is_secret_config(key))
            yield from secrets_in(value)
        elif isinstance(value, Mapping):
            yield from secrets_in(value)
        elif isinstance(value, list):
            yield from (secret for each in value if isinstance(each, Mapping) for secret in secrets_in(each))
        elif is_secret(name):
            yield str(value)
            yield from re.findall(r'"((?:[^"\\]|\\.)*)"', str(value))  # the parts of a JAAS config


class Mask:
    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret.strip() for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(_pattern, longest_first))) if longest_first else None

    def hide(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return looks_hidden(text)


def looks_hidden(text: str) -> str:
    """Hides what looks like a secret, whoever has written it."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _TOKEN.sub(HIDDEN, text)
    text = _BEARER.sub(lambda found: f"{found[1]} {HIDDEN}", text)
    text = _USER_IN_URL.sub(f"://{HIDDEN}@", text)
    return _ASSIGNED.sub(lambda found: found["name"] + _quoted_like(found["value"]), text)


def _quoted_like(value: str) -> str:
    """Keeps the quotes, so that JSON stays JSON."""
    quote_mark = value[0] if value[0] in "\"'" else ""
    return f"{quote_mark}{HIDDEN}{quote_mark}"


def _forms(secret: str) -> Iterator[str]:
    """As it is, line by line, and as Python, JSON, a URL or Base64 would write it."""
    for text in (secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= SHORT)):
        yield text
        yield text.encode("unicode_escape").decode("ascii")
        yield json.dumps(text)[1:-1]
        yield quote(text, safe="")
        yield base64.b64encode(text.encode()).decode("ascii").rstrip("=")


def _pattern(form: str) -> str:
    return re.escape(form) if len(form) >= SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
