"""The generated part of docs/internals/benchmarks.md and its images, from docs/internals/benchmarks/peers.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bench.peers.figures import PeerResults, decode, encode, format_table
from bench.peers.plots import IMAGES_BY_NAME, draw_images
from bench.servers import ROOT

RESULTS_FILE: Final = Path("docs", "internals", "benchmarks", "peers.json")
IMAGES: Final = Path("docs", "images")
PAGE: Final = Path("docs", "internals", "benchmarks.md")
BEGIN, END = "<!-- peers: written by bench.peers -->", "<!-- peers: end -->"
GENERATED_PART: Final = re.compile(rf"(?<={re.escape(BEGIN)}\n).*?(?=^{re.escape(END)})", re.MULTILINE | re.DOTALL)

NO_RESULTS: Final = "No results are stored yet; run `make bench-peers`.\n"
SUMMARY: Final = """\
Medians of {rounds} interleaved rounds after a warm-up, with about {seconds:g} s per load. Ratios are computed within a
round; above 1, Chronik is better. Longest round trips and memory after the load are maxima of all rounds. {kafka} has
its default settings and leaves flushing to the operating system, like `flush = "os"`; with `group`, acknowledged
records are on disk. Measured on {machine}; load before: {load_before:.2f}; Chronik {version}.
"""


def format_section(peers: PeerResults) -> str:
    pictures = "\n".join(f"![{title}](../images/{name})" for name, (title, _, _) in IMAGES_BY_NAME.items())
    tables = "\n\n".join(format_table(peers, nodes) for nodes in peers.cluster_sizes())
    summary = SUMMARY.format(
        rounds=peers.rounds,
        seconds=peers.seconds,
        kafka=peers.kafka,
        machine=peers.machine,
        load_before=peers.load_before,
        version=peers.version,
    )
    return f"{summary}\n{pictures}\n\n{tables}\n"


def replace_section(page: str, peers: PeerResults | None) -> str:
    assert GENERATED_PART.search(page), f"{PAGE} has no {BEGIN}"
    return GENERATED_PART.sub(lambda _: NO_RESULTS if peers is None else format_section(peers), page)


def write_results(peers: PeerResults, root: Path = ROOT) -> None:
    """Write the JSON file, the images and the generated part of the page."""
    (root / RESULTS_FILE).parent.mkdir(parents=True, exist_ok=True)
    (root / RESULTS_FILE).write_text(encode(peers), encoding="utf-8")
    regenerate(root)


def regenerate(root: Path = ROOT) -> None:
    """Regenerate the images and the page from the stored results."""
    peers = load_results(root)
    (root / IMAGES).mkdir(parents=True, exist_ok=True)
    for name, picture in ({} if peers is None else draw_images(peers)).items():
        (root / IMAGES / name).write_text(picture, encoding="utf-8")
    page = root / PAGE
    page.write_text(replace_section(page.read_text(encoding="utf-8"), peers), encoding="utf-8")


def load_results(root: Path = ROOT) -> PeerResults | None:
    path = root / RESULTS_FILE
    return decode(path.read_text(encoding="utf-8")) if path.exists() else None
