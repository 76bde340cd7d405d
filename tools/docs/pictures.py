"""The pictures of docs/architecture.md: the house, from the floors that a test keeps, and two of its walks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.test_imports_run_downwards import FLOORS
from tools.docs.drawing import Drawing, width_of

ROOT: Final = Path(__file__).parents[2]
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
IMAGES: Final = Path("docs", "images")

WIDTH: Final = 960.0
MARGIN: Final = 24.0
FLOOR_HEIGHT: Final = 50.0
ROOM_LINE: Final = re.compile(r"^([a-z]+)/ +(\S.*)$", re.MULTILINE)
ITEM: Final = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |\Z|^\S)", re.MULTILINE | re.DOTALL)
PLACE: Final = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)/?`")
CLAUSE: Final = re.compile(r"[,;:.(]")
STEP_HEIGHT: Final = 32.0
LANE_WIDTH: Final = 84.0


def pictures() -> dict[Path, str]:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    command = steps_of(section(text, "A command of the metadata log"))
    topic = steps_of(section(text, "A new topic in a cluster"))
    return {
        IMAGES / "house.svg": house(dict(ROOM_LINE.findall(section(text, "The rooms", "## ")))),
        IMAGES / "way-of-a-produce.svg": way("The way of a produce", steps_of(section(text, "A produce"))),
        IMAGES / "way-of-a-topic.svg": way("The way of a new topic", [*topic[:-1], *command, topic[-1]]),
    }


def section(text: str, heading: str, mark: str = "### ") -> str:
    _, _, rest = text.partition(f"\n{mark}{heading}\n")
    assert rest, f"docs/architecture.md has no section {heading}"
    return re.split(r"^#{2,3} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


# The house


def house(abouts: dict[str, str]) -> str:
    floors = [sorted(rooms) for rooms in FLOORS if "__main__" not in rooms]
    description = "From the top: " + "; ".join(", ".join(rooms) for rooms in floors) + "."
    height = MARGIN * 2 + FLOOR_HEIGHT * len(floors) + 26
    drawing = Drawing(WIDTH, height, "The house: rooms on floors, imports run downwards only", description)
    drawing.text(
        MARGIN,
        MARGIN + 8,
        "A room imports from the floors below it. Green ones have pure cores: no clock, no files, no sockets.",
        13,
        colour="soft",
    )
    for number, rooms in enumerate(floors):
        _draw_floor(drawing, rooms, MARGIN + 26 + FLOOR_HEIGHT * number, abouts)
    return drawing.svg()


def _draw_floor(drawing: Drawing, rooms: Sequence[str], top: float, abouts: dict[str, str]) -> None:
    gap = 8.0
    width = (WIDTH - 2 * MARGIN - gap * (len(rooms) - 1)) / len(rooms)
    for place, room in enumerate(rooms):
        x = MARGIN + place * (width + gap)
        about = abouts.get(room, "")
        drawing.box(x, top, width, FLOOR_HEIGHT - gap, *_colours(about))
        if about:
            drawing.text(x + 10, top + 18, f"{room}/", 13, strong=True)
            drawing.text(x + 10, top + 33, fitting(re.split(r";|  ", about)[0], width - 16, 11), 11, colour="soft")
        else:
            drawing.text(x + width / 2, top + 26, room, min(13, 1.9 * width / max(8, len(room))), anchor="middle")


def _colours(about: str) -> tuple[str]:
    if not about:
        return ("box",)
    return ("one-soft",) if "(pure)" in about else ("two-soft",)


def fitting(text: str, width: float, size: float) -> str:
    """As many words as there is room for."""
    text = text.replace("(pure)", "").strip()
    while width_of(text, size) > width and " " in text:
        text = text.rstrip("…").rstrip(" ,:").rpartition(" ")[0].rstrip(" ,:") + "…"
    return text


# The walks


class Step(NamedTuple):
    place: str
    """A file of the house, without its ending, or a folder."""
    about: str

    @property
    def room(self) -> str:
        return self.place.partition("/")[0]


def steps_of(walk: str) -> list[Step]:
    """The numbered lines of a walk; each names a file first."""
    steps = []
    for _, line in ITEM.findall(walk):
        place = PLACE.search(line)
        assert place is not None, f"a step that names no file: {line}"
        steps.append(Step(place[1], _first_clause(line[place.end() :])))
    assert len(steps) > 2
    return steps


def _first_clause(text: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "")
    words = re.sub(r"\([^)]*\)", "", plain)
    clauses = [" ".join(clause.split()) for clause in CLAUSE.split(words)]
    return next((clause for clause in clauses if " " in clause and not clause.startswith("on ")), "")


def way(title: str, steps: Sequence[Step]) -> str:
    rooms = list(dict.fromkeys(step.room for step in steps))
    lanes = {room: MARGIN + LANE_WIDTH * (0.5 + number) for number, room in enumerate(rooms)}
    top = MARGIN + 44
    words = MARGIN + LANE_WIDTH * len(rooms) + 12
    abouts = words + max(width_of(step.place, 12.5) for step in steps) + 10
    description = " ".join(f"{number}. {step.place} {step.about}." for number, step in enumerate(steps, 1))
    drawing = Drawing(WIDTH, top + STEP_HEIGHT * len(steps) + 8, title, description)
    bottom = top + STEP_HEIGHT * (len(steps) - 1)
    for room, x in lanes.items():
        drawing.text(x, MARGIN + 12, f"{room}/", 12, anchor="middle", strong=True)
        drawing.line(x, MARGIN + 22, x, bottom + 12)
    points = [(lanes[step.room], top + STEP_HEIGHT * number) for number, step in enumerate(steps)]
    drawing.path("M" + "L".join(f"{x:g} {y:g}" for x, y in points), "one", width=3)
    for number, (step, (x, y)) in enumerate(zip(steps, points, strict=True), 1):
        drawing.dot(x, y, 11, "one")
        drawing.text(x, y + 4, str(number), 11, colour="page", anchor="middle", strong=True)
        drawing.text(words, y + 4, step.place, 12.5, strong=True)
        drawing.text(abouts, y + 4, fitting(step.about, WIDTH - abouts - 8, 12.5), 12.5, colour="soft")
    return drawing.svg()
