"""Generator of the image in docs/internals/architecture.md: the package layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.test_import_layers import LAYERS
from tools.docs.svg import SvgDrawing, text_width

ROOT: Final = Path(__file__).parents[2]
ARCHITECTURE: Final = ROOT / "docs" / "internals" / "architecture.md"
IMAGES: Final = Path("docs", "images")

WIDTH: Final = 960.0
MARGIN: Final = 24.0
LAYER_HEIGHT: Final = 50.0
PACKAGE_ROW: Final = re.compile(r"^\| `([a-z]+)/` \| (.*?) \| (.*?)\|$", re.MULTILINE)


class PackageRow(NamedTuple):
    """A package as the page's table describes it."""

    contents: str
    pure_parts: str
    """The parts without I/O, or an empty string."""


def generate_images() -> dict[Path, str]:
    section = extract_section(ARCHITECTURE.read_text(encoding="utf-8"), "Packages")
    rows = {name: PackageRow(contents, pure.strip()) for name, contents, pure in PACKAGE_ROW.findall(section)}
    return {IMAGES / "package-layers.svg": draw_layers(rows)}


def extract_section(text: str, heading: str) -> str:
    """Return the text of a section up to the next heading."""
    _, _, rest = text.partition(f"\n## {heading}\n")
    assert rest, f"docs/internals/architecture.md has no section {heading}"
    return re.split(r"^#{2,3} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def draw_layers(rows: Mapping[str, PackageRow]) -> str:
    layers = [sorted(packages) for packages in LAYERS if "__main__" not in packages]
    description = "From the top: " + "; ".join(", ".join(packages) for packages in layers) + "."
    height = MARGIN * 2 + LAYER_HEIGHT * len(layers) + 26
    drawing = SvgDrawing(WIDTH, height, "Packages in layers; imports point downwards only", description)
    drawing.text(
        MARGIN,
        MARGIN + 8,
        "A package imports only from lower layers. Green packages have pure cores: no clock, no files, no sockets.",
        13,
        colour="soft",
    )
    for number, packages in enumerate(layers):
        _draw_layer(drawing, packages, MARGIN + 26 + LAYER_HEIGHT * number, rows)
    return drawing.to_svg()


def _draw_layer(drawing: SvgDrawing, packages: Sequence[str], top: float, rows: Mapping[str, PackageRow]) -> None:
    gap = 8.0
    width = (WIDTH - 2 * MARGIN - gap * (len(packages) - 1)) / len(packages)
    for position, package in enumerate(packages):
        x = MARGIN + position * (width + gap)
        row = rows.get(package)
        if row is None:  # a module, not a package
            drawing.box(x, top, width, LAYER_HEIGHT - gap, "box")
            drawing.text(x + width / 2, top + 26, package, min(13, 1.9 * width / max(8, len(package))), anchor="middle")
            continue
        drawing.box(x, top, width, LAYER_HEIGHT - gap, "one-soft" if row.pure_parts else "two-soft")
        drawing.text(x + 10, top + 18, f"{package}/", 13, strong=True)
        summary = truncate_to_width(row.contents.partition(";")[0].replace("`", ""), width - 16, 11)
        drawing.text(x + 10, top + 33, summary, 11, colour="soft")


def truncate_to_width(text: str, width: float, size: float) -> str:
    """Return as many words of the text as fit into the width."""
    while text_width(text, size) > width and " " in text:
        text = text.rstrip("…").rstrip(" ,").rpartition(" ")[0].rstrip(" ,") + "…"
    return text
