"""Results as SVG images: a panel per metric, one node on the left and three on the right, a bar per server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.peers.figures import GROUP, KAFKA, METRICS, OS, PeerMetric, PeerResults, format_name
from chronik.bench.report import format_number
from tools.docs.svg import SvgDrawing, text_width

COLOURS: Final = {OS: "one", GROUP: "two", KAFKA: "three"}
WIDTH: Final = 960.0
MARGIN: Final = 24.0
BAR_HEIGHT: Final = 16.0
BAR_GAP: Final = 6.0
NAME_WIDTH: Final = 112.0
VALUE_WIDTH: Final = 86.0
HEAD: Final = 56.0

IMAGES_BY_NAME: Final = {
    "peers-throughput.svg": ("Throughput: longer is better", ("produce_", "consume_"), "records/s"),
    "peers-round-trips.svg": ("Round trips of single records: shorter is better", ("trip_",), "ms"),
    "peers-costs.svg": (
        "Server cost: shorter is better",
        ("start", "memory_", "produce_cpu", "consume_cpu"),
        "",
    ),
}
"""By file name: title, prefixes of metric keys, and unit (if any)."""


def draw_images(peers: PeerResults) -> dict[str, str]:
    return {name: _plot(peers, title, _metrics(keys, unit)) for name, (title, keys, unit) in IMAGES_BY_NAME.items()}


def _metrics(key_prefixes: tuple[str, ...], unit: str) -> list[PeerMetric]:
    candidates = [metric for metric in METRICS if metric.key.startswith(key_prefixes)]
    return [metric for metric in candidates if not unit or metric.unit == unit]


def alternative_text(peers: PeerResults, metrics: list[PeerMetric]) -> str:
    """Return the alternative text of an image, with all values."""
    sentences = []
    for nodes in peers.cluster_sizes():
        for metric in metrics:
            values = [f"{server} {_format_value(peers, server, nodes, metric)}" for server in peers.servers(nodes)]
            sentences.append(
                f"{metric.title}, {format_name('', nodes).removeprefix(', ')}: {', '.join(values)} {metric.unit}."
            )
    return " ".join(sentences)


def _format_value(peers: PeerResults, server: str, nodes: int, metric: PeerMetric) -> str:
    measured = peers.find(server, nodes)
    value = None if measured is None else measured.value(metric)
    return "unknown" if value is None else format_number(value)


def _plot(peers: PeerResults, title: str, metrics: list[PeerMetric]) -> str:
    sizes = peers.cluster_sizes()
    bars = max(len(peers.servers(nodes)) for nodes in sizes)
    panel_height = 30 + bars * (BAR_HEIGHT + BAR_GAP) + 12
    column = (WIDTH - MARGIN * (len(sizes) + 1)) / len(sizes)
    drawing = SvgDrawing(WIDTH, HEAD + panel_height * len(metrics) + 8, title, alternative_text(peers, metrics))
    drawing.text(MARGIN, 28, title, 16, strong=True)
    for column_index, nodes in enumerate(sizes):
        x = MARGIN + column_index * (column + MARGIN)
        drawing.text(x, 50, format_name("", nodes).removeprefix(", ").capitalize(), 13, colour="soft", strong=True)
        for row, metric in enumerate(metrics):
            _panel(drawing, peers, nodes, metric, x, HEAD + panel_height * row, column)
    return drawing.to_svg()


def _panel(
    drawing: SvgDrawing, peers: PeerResults, nodes: int, metric: PeerMetric, x: float, y: float, width: float
) -> None:
    drawing.text(x, y + 20, f"{metric.title}, {metric.unit}", 12.5)
    values = {}
    for server in peers.servers(nodes):
        measured = peers.find(server, nodes)
        values[server] = None if measured is None else measured.value(metric)
    largest = max((value for value in values.values() if value), default=1.0)
    max_bar_length = width - NAME_WIDTH - VALUE_WIDTH
    for row, (server, value) in enumerate(values.items()):
        top = y + 30 + row * (BAR_HEIGHT + BAR_GAP)
        drawing.text(x, top + 12.5, server, 12, colour="soft")
        length = max(1.5, max_bar_length * value / largest) if value else 0.0
        drawing.box(x + NAME_WIDTH, top, length, BAR_HEIGHT, COLOURS[server])
        shown = "not measured" if value is None else format_number(value)
        assert text_width(shown, 12) < VALUE_WIDTH
        drawing.text(x + NAME_WIDTH + length + 6, top + 12.5, shown, 12, strong=True)


def image_paths(images: Path) -> list[Path]:
    return [images / name for name in IMAGES_BY_NAME]
