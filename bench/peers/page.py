"""The section of docs/benchmarks.md about peers: made of docs/benchmarks/peers.json, as its pictures are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bench.peers.figures import Peers, decoded, encoded, table
from bench.peers.plots import PICTURES, plots
from bench.servers import ROOT

KEPT: Final = Path("docs", "benchmarks", "peers.json")
IMAGES: Final = Path("docs", "images")
PAGE: Final = Path("docs", "benchmarks.md")
BEGIN, END = "<!-- peers: written by bench.peers -->", "<!-- peers: end -->"
BETWEEN: Final = re.compile(rf"(?<={re.escape(BEGIN)}\n).*?(?=^{re.escape(END)})", re.MULTILINE | re.DOTALL)

NOT_YET: Final = "No run is kept yet: `make bench-peers` makes one.\n"
HOW: Final = """\
Medians of {rounds} rounds in turn, after a warm-up, with about {seconds:g} s of each load; ratios are taken within a
round, and above 1 Chronik is better. Longest trips and memory after the load are the most of all rounds. {kafka} is as
shipped, and leaves flushing to the system, as `flush = "os"` does; with `group` what is acknowledged is on disk.
Measured on {machine}; load before: {load_before:.2f}; Chronik {version}.
"""


def section(peers: Peers) -> str:
    pictures = "\n".join(f"![{title}](images/{name})" for name, (title, _, _) in PICTURES.items())
    tables = "\n\n".join(table(peers, nodes) for nodes in peers.sizes())
    told = HOW.format(
        rounds=peers.rounds,
        seconds=peers.seconds,
        kafka=peers.kafka,
        machine=peers.machine,
        load_before=peers.load_before,
        version=peers.version,
    )
    return f"{told}\n{pictures}\n\n{tables}\n"


def with_section(page: str, peers: Peers | None) -> str:
    assert BETWEEN.search(page), f"{PAGE} has no {BEGIN}"
    return BETWEEN.sub(lambda _: NOT_YET if peers is None else section(peers), page)


def keep(peers: Peers, root: Path = ROOT) -> None:
    """Writes the file, the pictures and the section."""
    (root / KEPT).parent.mkdir(parents=True, exist_ok=True)
    (root / KEPT).write_text(encoded(peers), encoding="utf-8")
    draw(root)


def draw(root: Path = ROOT) -> None:
    """Of what is kept."""
    peers = kept(root)
    (root / IMAGES).mkdir(parents=True, exist_ok=True)
    for name, picture in ({} if peers is None else plots(peers)).items():
        (root / IMAGES / name).write_text(picture, encoding="utf-8")
    page = root / PAGE
    page.write_text(with_section(page.read_text(encoding="utf-8"), peers), encoding="utf-8")


def kept(root: Path = ROOT) -> Peers | None:
    path = root / KEPT
    return decoded(path.read_text(encoding="utf-8")) if path.exists() else None
