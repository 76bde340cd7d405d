"""`chronik cluster certs`: a CA and certificates to begin with, for nodes and for a client."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronik.cli.arguments import Actions, add_json_argument
from chronik.cli.output import print_json
from chronik.errors import ChronikError
from chronik.wording import install_hint

if TYPE_CHECKING:
    from chronik.tls.issuing import Authority

HERE: Final = ("localhost", "127.0.0.1", "::1")
NODES_MAX: Final = 64


class CertsRefused(ChronikError):
    """They cannot be made as asked for; the message says why."""


def add_arguments(actions: Actions) -> None:
    parser = actions.add_parser("certs", help="make a CA, and certificates for nodes and a client, to begin with")
    parser.add_argument("folder", type=Path, metavar="DIR", help="where they go; what is there already stays as it is")
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="nodes 1 to N (default: 3)")
    parser.add_argument("--hosts", metavar="HOST,…", help="of each node in turn: the name or address that clients use")
    parser.add_argument("--client", default="client", metavar="NAME", help="the client's name (default: client)")
    add_json_argument(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    subjects = _subjects(arguments)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, made = _authority(folder)
    for name, hosts in subjects.items():
        path = folder / f"{name}.pem"
        if not path.exists():
            _write(path, authority.issue(f"CN={name}", hosts).both)
            made.append(path)
    if arguments.json:
        print_json({"folder": str(folder), "made": [path.name for path in made]})
        return 0
    print(f"made in {folder}: {', '.join(path.name for path in made) or 'nothing: all of it is there'}")
    if made:
        print("ca.pem is what others trust; keep ca-key.pem apart, and give each node and client its own file alone")
    return 0


def _subjects(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Returns the names of files and subjects, each with the hosts that it stands for."""
    count = arguments.nodes
    if not 1 <= count <= NODES_MAX:
        raise CertsRefused(f"--nodes {count}: expected 1 to {NODES_MAX}")
    hosts = arguments.hosts.split(",") if arguments.hosts else []
    if hosts and len(hosts) != count:
        raise CertsRefused(f"--hosts {arguments.hosts}: expected {count}, one for each node, with commas between them")
    if not arguments.client.replace("-", "").replace("_", "").isalnum():
        raise CertsRefused(f"--client {arguments.client}: expected letters, numbers, - and _")
    nodes = {f"node{number}": (*hosts[number - 1 : number], *HERE) for number in range(1, count + 1)}
    return nodes | {arguments.client: ()}


def _authority(folder: Path) -> tuple[Authority, list[Path]]:
    """Returns the CA of the folder, and the files that were made for it."""
    try:
        from chronik.tls.issuing import Authority, Issued
    except ImportError:
        raise CertsRefused(f"certificates are made by the library cryptography: {install_hint('certs')}") from None
    certificate, key = folder / "ca.pem", folder / "ca-key.pem"
    if certificate.exists() and key.exists():
        try:
            return Authority("", Issued(key.read_bytes(), certificate.read_bytes())), []
        except ValueError as error:
            raise CertsRefused(f"{certificate} and {key} are not a CA that was made here: {error}") from None
    if certificate.exists() or key.exists():
        there, missing = (certificate, key) if certificate.exists() else (key, certificate)
        raise CertsRefused(f"{there} is there and {missing.name} is not: bring it back, or choose another folder")
    authority = Authority("Chronik cluster")
    _write(key, authority.issued.key)
    _write(certificate, authority.certificate)
    return authority, [certificate, key]


def _write(path: Path, content: bytes) -> None:
    """Nobody else can read it, at no moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
