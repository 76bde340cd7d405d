"""`chronik doctor --bundle FILE`: a tar archive of findings, facts, status pages, configs and log tails.

Secrets are redacted: values under secret names in place, and known secrets wherever they appear, in all their
encodings. In free text such as logs, everything that looks like a password, a token or a key is redacted as well.
"""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import re
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import chronik
from chronik.cli.doctor import findings as doctor_findings
from chronik.cli.doctor.findings import DoctorFinding
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.monitoring.facts import ClusterFacts, facts_to_json
from chronik.cli.monitoring.node_pages import NodePages
from chronik.client.access.settings import ClientSecurity
from chronik.config import SECRET_WORDS
from chronik.configs.broker_key_lookup import find_broker_key
from chronik.escaping import to_json_text

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
"""Minimum length of a secret that is redacted even within other words.

Shorter secrets are redacted only as whole words.
"""

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

LOG_BYTES_MAX: Final = 1 << 20
"""Maximum size in bytes of a log file in the support bundle.

Of larger files, only the end is included.
"""

LIBRARIES: Final = ("uvloop", "msgspec", "crc32c", "cramjam", "h11", "pyspark", "pyarrow", "deltalake")

README: Final = """\
The output of `chronik doctor`. Passwords, tokens, keys and the cluster secret are redacted: values of settings with
secret names, known secrets wherever they appear, and texts in logs that look like secrets. Names are included: nodes
and their addresses, topics, groups and transactional ids. Review the archive before you send it to anyone.

findings.txt, findings.json   problems, and how to fix them
facts.json                    the facts that were checked
versions.txt                  versions of Chronik, Python, the operating system and libraries
config/                       parsed config files
status/, metrics/             the nodes' /status and /metrics pages
logs/                         the ends of log files
"""


def is_secret_name(name: str) -> bool:
    """Return whether a setting with this name may contain a secret."""
    lowered = name.lower()
    return any(word in lowered for word in SECRET_NAME_PARTS)


def is_secret_config(name: str) -> bool:
    """Return whether a broker config may contain a secret. Unknown configs are treated as secret."""
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
        forms = {form for secret in secrets if secret.strip() for form in _iter_secret_encodings(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(_build_secret_pattern, longest_first))) if longest_first else None

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
    return _ASSIGNED.sub(lambda found: found["name"] + _redact_quoted_value(found["value"]), text)


def _redact_quoted_value(value: str) -> str:
    """Return the redaction mark in the quotes of the redacted value, so that JSON stays valid."""
    quote_mark = value[0] if value[0] in "\"'" else ""
    return f"{quote_mark}{REDACTED}{quote_mark}"


def _iter_secret_encodings(secret: str) -> Iterator[str]:
    """Yield the encodings in which a secret may occur in a file, such as JSON, URL and Base64."""
    for text in (secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= MIN_SUBSTRING_LENGTH)):
        yield text
        yield text.encode("unicode_escape").decode("ascii")
        yield json.dumps(text)[1:-1]
        yield quote(text, safe="")
        yield base64.b64encode(text.encode()).decode("ascii").rstrip("=")


def _build_secret_pattern(form: str) -> str:
    return re.escape(form) if len(form) >= MIN_SUBSTRING_LENGTH else rf"(?<!\w){re.escape(form)}(?!\w)"


class BundleContents(NamedTuple):
    """The data to include in a support bundle: findings, facts, status pages, configs and logs."""

    findings: Sequence[DoctorFinding]
    local: LocalFacts
    cluster: ClusterFacts | None
    pages: Sequence[NodePages]
    configs: Sequence[Path]
    logs: Sequence[Path]
    security: ClientSecurity


def write_bundle(path: Path, seen: BundleContents, environment: Iterable[tuple[str, str]]) -> list[str]:
    """Write a support bundle that only its owner can read, and return the names of its members."""
    mask = Redactor(_iter_known_secrets(seen, environment))
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(opened, 0o600)  # an existing file may be readable by others
    names = []
    with os.fdopen(opened, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in _build_members(seen):
            data = mask.redact(text).encode()
            entry = tarfile.TarInfo(f"chronik-doctor/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(data))
            names.append(name)
    return names


def _iter_known_secrets(seen: BundleContents, environment: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the secrets that must be redacted, from config files, client settings and the environment."""
    for path in seen.configs:
        yield from find_secrets(_read_toml(path) or {})
    security = seen.security
    yield from (security.password, security.key, security.key_password)
    yield from (value for name, value in environment if name.startswith("CHRONIK_") and is_secret_name(name))


def _build_members(seen: BundleContents) -> Iterator[tuple[str, str]]:
    yield "README.txt", README
    yield "findings.txt", doctor_findings.format_findings(seen.findings, 100) + "\n"
    yield "findings.json", to_json_text(doctor_findings.findings_to_json(seen.findings), indent=2) + "\n"
    facts = {
        "local": facts_to_json(seen.local),
        "cluster": None if seen.cluster is None else facts_to_json(seen.cluster),
    }
    yield "facts.json", to_json_text(facts, indent=2) + "\n"
    yield "versions.txt", _format_versions()
    for path in seen.configs:
        raw = _read_toml(path)
        text = f"{REDACTED}: not valid TOML, so its secrets are unknown" if raw is None else None
        yield f"config/{path.name}.json", (text or to_json_text(redact_config(raw or {}), indent=2, default=str)) + "\n"
    for page in seen.pages:
        yield f"status/node{page.node_id}.json", to_json_text(page.status, indent=2) + "\n"
        yield f"metrics/node{page.node_id}.txt", page.metrics_text
    for log in seen.logs:
        yield f"logs/{log.name}", _tail(log)


def _read_toml(path: Path) -> dict[str, object] | None:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _tail(path: Path) -> str:
    """Return the last lines of a node's log.

    Drop a partial first line, in which a truncated secret would not be redacted.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"{error.strerror or error}\n"
    return text if size <= LOG_BYTES_MAX else text.partition("\n")[2]


def _format_versions() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [f"chronik {chronik.__version__}", f"Python {sys.version}", system]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines) + "\n"
