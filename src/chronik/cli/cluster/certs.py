"""`chronik cluster certs`: create a CA and certificates for the nodes and a client."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronik.cli.arguments import Subparsers, add_json_argument
from chronik.cli.output import print_json
from chronik.errors import ChronikError
from chronik.wording import format_install_hint

if TYPE_CHECKING:
    from chronik.tls.certificate_authority import CertificateAuthority

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
NODES_MAX: Final = 64


class CertsError(ChronikError):
    """An error that prevents the creation of certificates."""


def add_arguments(actions: Subparsers) -> None:
    parser = actions.add_parser("certs", help="create a CA, and certificates for nodes and a client")
    parser.add_argument("folder", type=Path, metavar="DIR", help="output directory; existing files are kept")
    parser.add_argument(
        "--nodes", type=int, default=3, metavar="N", help="create certificates for nodes 1 to N (default: 3)"
    )
    parser.add_argument("--hosts", metavar="HOST,…", help="host name or IP address of each node, in order of node ids")
    parser.add_argument("--client", default="client", metavar="NAME", help="name of the client (default: client)")
    add_json_argument(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    subjects = _build_certificate_subjects(arguments)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, created = _load_or_create_authority(folder)
    for name, hosts in subjects.items():
        path = folder / f"{name}.pem"
        if not path.exists():
            _write_private_file(path, authority.issue(f"CN={name}", hosts).keystore_pem)
            created.append(path)
    if arguments.json:
        print_json({"folder": str(folder), "made": [path.name for path in created]})
        return 0
    print(f"created in {folder}: {', '.join(path.name for path in created) or 'nothing; all files exist'}")
    if created:
        print(
            "nodes and clients trust ca.pem; store ca-key.pem elsewhere, and give each node or client its own file only"
        )
    return 0


def _build_certificate_subjects(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Return the hosts of each certificate by subject. The subject is also the base name of the certificate's files."""
    count = arguments.nodes
    if not 1 <= count <= NODES_MAX:
        raise CertsError(f"--nodes {count}: expected 1 to {NODES_MAX}")
    hosts = arguments.hosts.split(",") if arguments.hosts else []
    if hosts and len(hosts) != count:
        raise CertsError(f"--hosts {arguments.hosts}: expected {count} hosts, one per node, separated by commas")
    if not arguments.client.replace("-", "").replace("_", "").isalnum():
        raise CertsError(f"--client {arguments.client}: expected letters, digits, - and _")
    nodes = {f"node{number}": (*hosts[number - 1 : number], *LOOPBACK_HOSTS) for number in range(1, count + 1)}
    return nodes | {arguments.client: ()}


def _load_or_create_authority(folder: Path) -> tuple[CertificateAuthority, list[Path]]:
    """Load the directory's CA, or create it if missing. Return the CA and the created files."""
    try:
        from chronik.tls.certificate_authority import CertificateAuthority, IssuedCertificate
    except ImportError:
        raise CertsError(
            f"creating certificates requires the library cryptography: {format_install_hint('certs')}"
        ) from None
    certificate, key = folder / "ca.pem", folder / "ca-key.pem"
    if certificate.exists() and key.exists():
        try:
            return CertificateAuthority("", IssuedCertificate(key.read_bytes(), certificate.read_bytes())), []
        except ValueError as error:
            raise CertsError(f"{certificate} and {key} are not a CA of this command: {error}") from None
    if certificate.exists() or key.exists():
        existing, missing = (certificate, key) if certificate.exists() else (key, certificate)
        raise CertsError(f"{existing} exists but {missing.name} does not: restore it, or choose another directory")
    authority = CertificateAuthority("Chronik cluster")
    _write_private_file(key, authority.ca_certificate.key)
    _write_private_file(certificate, authority.certificate_pem)
    return authority, [certificate, key]


def _write_private_file(path: Path, content: bytes) -> None:
    """Create a file with permissions that only ever allow its owner to read it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
