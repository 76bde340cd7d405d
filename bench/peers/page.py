"""The generated part of docs/benchmarks.md and its images, from docs/benchmarks/peers.json."""

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
GENERATED_PART: Final = re.compile(rf"(?<={re.escape(BEGIN)}\n).*?(?=^{re.escape(END)})", re.MULTILINE | re.DOTALL)

NOT_YET: Final = "No results are stored yet; run `make bench-peers`.\n"
HOW: Final = """\
Medians of {rounds} interleaved rounds after a warm-up, with about {seconds:g} s per load. Ratios are computed within a
round; above 1, Chronik is better. Longest round trips and memory after the load are maxima of all rounds. {kafka} has
its default settings and leaves flushing to the operating system, like `flush = "os"`; with `group`, acknowledged
records are on disk. Measured on {machine}; load before: {load_before:.2f}; Chronik {version}.
"""


def section(peers: Peers) -> str:
    pictures = "\n".join(f"![{title}](images/{name})" for name, (title, _, _) in PICTURES.items())
    tables = "\n\n".join(table(peers, nodes) for nodes in peers.sizes())
    summary = HOW.format(
        rounds=peers.rounds,
        seconds=peers.seconds,
        kafka=peers.kafka,
        machine=peers.machine,
        load_before=peers.load_before,
        version=peers.version,
    )
    return f"{summary}\n{pictures}\n\n{tables}\n"


def with_section(page: str, peers: Peers | None) -> str:
    assert GENERATED_PART.search(page), f"{PAGE} has no {BEGIN}"
    return GENERATED_PART.sub(lambda _: NOT_YET if peers is None else section(peers), page)


def keep(peers: Peers, root: Path = ROOT) -> None:
    """Write the JSON file, the images and the generated part of the page."""
    (root / KEPT).parent.mkdir(parents=True, exist_ok=True)
    (root / KEPT).write_text(encoded(peers), encoding="utf-8")
    draw(root)


def draw(root: Path = ROOT) -> None:
    """Regenerate the images and the page from the stored results."""
    peers = kept(root)
    (root / IMAGES).mkdir(parents=True, exist_ok=True)
    for name, picture in ({} if peers is None else plots(peers)).items():
        (root / IMAGES / name).write_text(picture, encoding="utf-8")
    page = root / PAGE
    page.write_text(with_section(page.read_text(encoding="utf-8"), peers), encoding="utf-8")


def kept(root: Path = ROOT) -> Peers | None:
    path = root / KEPT
    return decoded(path.read_text(encoding="utf-8")) if path.exists() else None
