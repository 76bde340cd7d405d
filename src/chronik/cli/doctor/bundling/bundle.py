"""`--bundle FILE.tar.gz`: findings, facts, pages, configs and the ends of logs, each without secrets."""

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
from chronik.cli.doctor import findings as told
from chronik.cli.doctor.bundling.masking import HIDDEN, Mask, is_secret, masked_config, secrets_in
from chronik.cli.doctor.findings import Finding
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.watching.facts import ClusterFacts, to_json
from chronik.cli.watching.pages import Page
from chronik.client.access.settings import ClientSecurity
from chronik.shown import json_text

LOG_BYTES_MAX: Final = 1 << 20
"""Of each log, the end of it."""

PARTS: Final = ("uvloop", "msgspec", "crc32c", "cramjam", "h11", "pyspark", "pyarrow", "deltalake")

ABOUT: Final = """\
What `chronik doctor` has seen. There is no password, token, key or cluster secret in it: values under such names are
hidden, and so is each known secret wherever it appears, and what looks like one in logs. Names are there: of nodes and
their addresses, of topics, groups and transactional ids. Look through it before you send it to somebody.

findings.txt, findings.json   what is wrong, and what to do
facts.json                    what that was judged by
versions.txt                  of Chronik, Python, the system and libraries
config/                       config files, as they are understood
status/, metrics/             the nodes' pages
logs/                         the ends of logs
"""


class Seen(NamedTuple):
    """All that goes in."""

    findings: Sequence[Finding]
    local: LocalFacts
    cluster: ClusterFacts | None
    pages: Sequence[Page]
    configs: Sequence[Path]
    logs: Sequence[Path]
    security: ClientSecurity


def write_bundle(path: Path, seen: Seen, environment: Iterable[tuple[str, str]]) -> list[str]:
    """Writes it for its owner's eyes only, and returns the names of what is in it. Raises OSError."""
    mask = Mask(secrets_of(seen, environment))
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(opened, 0o600)  # one that is written over may have been open to others
    names = []
    with os.fdopen(opened, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in _parts(seen):
            data = mask.hide(text).encode()
            entry = tarfile.TarInfo(f"chronik-doctor/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(data))
            names.append(name)
    return names


def secrets_of(seen: Seen, environment: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields all that we know: of config files, of client settings, of the environment, of certificates' keys."""
    for path in seen.configs:
        yield from secrets_in(_raw(path) or {})
    security = seen.security
    yield from (security.password, security.key, security.key_password)
    yield from (value for name, value in environment if name.startswith("CHRONIK_") and is_secret(name))


def _parts(seen: Seen) -> Iterator[tuple[str, str]]:
    yield "README.txt", ABOUT
    yield "findings.txt", told.paragraphs(seen.findings, 100) + "\n"
    yield "findings.json", json_text(told.to_json(seen.findings), indent=2) + "\n"
    facts = {"local": to_json(seen.local), "cluster": None if seen.cluster is None else to_json(seen.cluster)}
    yield "facts.json", json_text(facts, indent=2) + "\n"
    yield "versions.txt", _versions()
    for path in seen.configs:
        raw = _raw(path)
        text = f"{HIDDEN}: it is not valid TOML, so nobody knows what in it is secret" if raw is None else None
        yield f"config/{path.name}.json", (text or json_text(masked_config(raw or {}), indent=2, default=str)) + "\n"
    for page in seen.pages:
        yield f"status/node{page.node_id}.json", json_text(page.status, indent=2) + "\n"
        yield f"metrics/node{page.node_id}.txt", page.metrics_text
    for log in seen.logs:
        yield f"logs/{log.name}", _tail(log)


def _raw(path: Path) -> dict[str, object] | None:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _tail(path: Path) -> str:
    """Returns whole lines: half of one might be half of a secret, which nobody would know again."""
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
    for name in PARTS:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines) + "\n"
