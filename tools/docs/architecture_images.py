"""Generator of the images in docs/internals/architecture.md: the package layers and two request paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
PACKAGE_LINE: Final = re.compile(r"^([a-z]+)/ +(\S.*)$", re.MULTILINE)
ITEM: Final = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |\Z|^\S)", re.MULTILINE | re.DOTALL)
FILE_REFERENCE: Final = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)/?`")
CLAUSE: Final = re.compile(r"[,;:.(]")
STEP_HEIGHT: Final = 32.0
LANE_WIDTH: Final = 84.0


def generate_images() -> dict[Path, str]:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    command = parse_steps(extract_section(text, "A command of the metadata log"))
    topic = parse_steps(extract_section(text, "A new topic in a cluster"))
    return {
        IMAGES / "package-layers.svg": draw_layers(
            dict(PACKAGE_LINE.findall(extract_section(text, "Packages", "## ")))
        ),
        IMAGES / "produce-path.svg": draw_request_path(
            "Path of a produce request", parse_steps(extract_section(text, "A produce"))
        ),
        IMAGES / "topic-path.svg": draw_request_path("Path of a new topic", [*topic[:-1], *command, topic[-1]]),
    }


def extract_section(text: str, heading: str, mark: str = "### ") -> str:
    _, _, rest = text.partition(f"\n{mark}{heading}\n")
    assert rest, f"docs/internals/architecture.md has no section {heading}"
    return re.split(r"^#{2,3} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


# Package layers


def draw_layers(descriptions: dict[str, str]) -> str:
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
        _draw_layer(drawing, packages, MARGIN + 26 + LAYER_HEIGHT * number, descriptions)
    return drawing.to_svg()


def _draw_layer(drawing: SvgDrawing, packages: Sequence[str], top: float, descriptions: dict[str, str]) -> None:
    gap = 8.0
    width = (WIDTH - 2 * MARGIN - gap * (len(packages) - 1)) / len(packages)
    for place, package in enumerate(packages):
        x = MARGIN + place * (width + gap)
        about = descriptions.get(package, "")
        drawing.box(x, top, width, LAYER_HEIGHT - gap, *_colours(about))
        if about:
            drawing.text(x + 10, top + 18, f"{package}/", 13, strong=True)
            drawing.text(
                x + 10, top + 33, truncate_to_width(re.split(r";|  ", about)[0], width - 16, 11), 11, colour="soft"
            )
        else:
            drawing.text(x + width / 2, top + 26, package, min(13, 1.9 * width / max(8, len(package))), anchor="middle")


def _colours(about: str) -> tuple[str]:
    if not about:
        return ("box",)
    return ("one-soft",) if "(pure)" in about else ("two-soft",)


def truncate_to_width(text: str, width: float, size: float) -> str:
    """Return as many words of the text as fit into the width."""
    text = text.replace("(pure)", "").strip()
    while text_width(text, size) > width and " " in text:
        text = text.rstrip("…").rstrip(" ,:").rpartition(" ")[0].rstrip(" ,:") + "…"
    return text


# Request paths


class PathStep(NamedTuple):
    """A step of a request path."""

    file: str
    """A source file without its extension, or a package."""
    about: str

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]


def parse_steps(path_text: str) -> list[PathStep]:
    """Parse the numbered steps of a request path; each starts with a file name."""
    steps = []
    for _, line in ITEM.findall(path_text):
        place = FILE_REFERENCE.search(line)
        assert place is not None, f"step without a file name: {line}"
        steps.append(PathStep(place[1], _first_clause(line[place.end() :])))
    assert len(steps) > 2
    return steps


def _first_clause(text: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "")
    name_column = re.sub(r"\([^)]*\)", "", plain)
    clauses = [" ".join(clause.split()) for clause in CLAUSE.split(name_column)]
    return next((clause for clause in clauses if " " in clause and not clause.startswith("on ")), "")


def draw_request_path(title: str, steps: Sequence[PathStep]) -> str:
    packages = list(dict.fromkeys(step.package for step in steps))
    lanes = {package: MARGIN + LANE_WIDTH * (0.5 + number) for number, package in enumerate(packages)}
    top = MARGIN + 44
    name_column = MARGIN + LANE_WIDTH * len(packages) + 12
    descriptions = name_column + max(text_width(step.file, 12.5) for step in steps) + 10
    description = " ".join(f"{number}. {step.file} {step.about}." for number, step in enumerate(steps, 1))
    drawing = SvgDrawing(WIDTH, top + STEP_HEIGHT * len(steps) + 8, title, description)
    bottom = top + STEP_HEIGHT * (len(steps) - 1)
    for package, x in lanes.items():
        drawing.text(x, MARGIN + 12, f"{package}/", 12, anchor="middle", strong=True)
        drawing.line(x, MARGIN + 22, x, bottom + 12)
    points = [(lanes[step.package], top + STEP_HEIGHT * number) for number, step in enumerate(steps)]
    drawing.path("M" + "L".join(f"{x:g} {y:g}" for x, y in points), "one", width=3)
    for number, (step, (x, y)) in enumerate(zip(steps, points, strict=True), 1):
        drawing.dot(x, y, 11, "one")
        drawing.text(x, y + 4, str(number), 11, colour="page", anchor="middle", strong=True)
        drawing.text(name_column, y + 4, step.file, 12.5, strong=True)
        drawing.text(
            descriptions, y + 4, truncate_to_width(step.about, WIDTH - descriptions - 8, 12.5), 12.5, colour="soft"
        )
    return drawing.to_svg()
