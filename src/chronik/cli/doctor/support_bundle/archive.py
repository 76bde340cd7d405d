"""`chronik doctor --bundle FILE`: a tar archive of findings, facts, status pages, configs and log tails."""

from __future__ import annotations

import io
import os
import platform
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

import chronik
from chronik.cli.doctor import findings as doctor_findings
from chronik.cli.doctor.findings import DoctorFinding
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.doctor.support_bundle.redaction import REDACTED, Redactor, find_secrets, is_secret_name, redact_config
from chronik.cli.monitoring.facts import ClusterFacts, facts_to_json
from chronik.cli.monitoring.node_pages import NodePages
from chronik.client.access.settings import ClientSecurity
from chronik.escaping import to_json_text

LOG_BYTES_MAX: Final = 1 << 20
"""Maximum size of a log file in the archive; only its end is included."""

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


class BundleContents(NamedTuple):
    """The inputs of a support bundle."""

    findings: Sequence[DoctorFinding]
    local: LocalFacts
    cluster: ClusterFacts | None
    pages: Sequence[NodePages]
    configs: Sequence[Path]
    logs: Sequence[Path]
    security: ClientSecurity


def write_bundle(path: Path, seen: BundleContents, environment: Iterable[tuple[str, str]]) -> list[str]:
    """Write the archive so that only its owner can read it; return the names of its members."""
    mask = Redactor(_known_secrets(seen, environment))
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(opened, 0o600)  # an existing file may be readable by others
    names = []
    with os.fdopen(opened, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in _members(seen):
            data = mask.redact(text).encode()
            entry = tarfile.TarInfo(f"chronik-doctor/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(data))
            names.append(name)
    return names


def _known_secrets(seen: BundleContents, environment: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the secrets in config files, client settings and the environment."""
    for path in seen.configs:
        yield from find_secrets(_read_toml(path) or {})
    security = seen.security
    yield from (security.password, security.key, security.key_password)
    yield from (value for name, value in environment if name.startswith("CHRONIK_") and is_secret_name(name))


def _members(seen: BundleContents) -> Iterator[tuple[str, str]]:
    yield "README.txt", README
    yield "findings.txt", doctor_findings.format_findings(seen.findings, 100) + "\n"
    yield "findings.json", to_json_text(doctor_findings.findings_to_json(seen.findings), indent=2) + "\n"
    facts = {
        "local": facts_to_json(seen.local),
        "cluster": None if seen.cluster is None else facts_to_json(seen.cluster),
    }
    yield "facts.json", to_json_text(facts, indent=2) + "\n"
    yield "versions.txt", _versions()
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
    """Return the last lines of a log. A partial first line is dropped, because half a secret would not be redacted."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"{error.strerror or error}\n"
    return text if size <= LOG_BYTES_MAX else text.partition("\n")[2]


def _versions() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [f"chronik {chronik.__version__}", f"Python {sys.version}", system]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines) + "\n"
