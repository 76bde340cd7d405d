"""Renderer of Mermaid state diagrams as SVG, because Mermaid itself would be loaded from another host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tools.docs.svg import SvgDrawing, text_width

STEP: Final = re.compile(r"^\s*(\S+) --> (\S+?)(?:: (.*))?$", re.MULTILINE)
BEGIN: Final = "[*]"
STATE_HEIGHT: Final = 34.0
GAP: Final = 46.0
LANE: Final = 26.0
MARGIN: Final = 24.0
LINE: Final = 20.0


class StateTransition(NamedTuple):
    """A transition of a state diagram."""

    source: str
    target: str
    reason: str


def parse_transitions(mermaid: str) -> list[StateTransition]:
    return [StateTransition(found[1], found[2], found[3] or "") for found in STEP.finditer(mermaid)]


def draw_states(mermaid: str) -> str:
    """Draw states in a column; each transition has a lane, downward ones on the right and upward ones on the left."""
    steps = parse_transitions(mermaid)
    states = list(dict.fromkeys(name for step in steps for name in step[:2] if name != BEGIN))
    numbered = [step for step in steps if BEGIN not in step[:2]]
    rows = {state: number for number, state in enumerate(states)}
    down = _sort_into_lanes([step for step in numbered if rows[step.target] > rows[step.source]], rows)
    up = _sort_into_lanes([step for step in numbered if rows[step.target] < rows[step.source]], rows)
    state_width = max(text_width(state, 14) for state in states) + 40
    left = MARGIN + LANE * (len(up) + 1)
    right = left + state_width
    legend = [f"{number}  {step.source} → {step.target}: {step.reason}" for number, step in enumerate(numbered, 1)]
    states_height = len(states) * (STATE_HEIGHT + GAP)
    width = max(right + LANE * (len(down) + 1) + MARGIN, MARGIN * 2 + max(text_width(line, 13) for line in legend))
    drawing = SvgDrawing(
        width,
        MARGIN * 2 + states_height + LINE * len(legend),
        "States, and what leads from one to another",
        ". ".join(legend),
    )
    tops = {state: MARGIN + row * (STATE_HEIGHT + GAP) for state, row in rows.items()}
    for lanes, x, sign in ((down, right, 1), (up, left, -1)):
        for lane, step in enumerate(lanes, 1):
            _draw_step(drawing, step, str(numbered.index(step) + 1), tops, x, sign * LANE * lane)
    for state in states:
        drawing.box(left, tops[state], state_width, STATE_HEIGHT, "one-soft", line="one")
        drawing.text(left + state_width / 2, tops[state] + 22, state, 14, anchor="middle", strong=True)
    for number, line in enumerate(legend):
        drawing.text(MARGIN, MARGIN + states_height + LINE * number, line, 13)
    return drawing.to_svg()


def _sort_into_lanes(steps: Sequence[StateTransition], rows: dict[str, int]) -> list[StateTransition]:
    """Sort the transitions by length, so that short ones are next to the states and few lines cross."""
    return sorted(steps, key=lambda step: abs(rows[step.source] - rows[step.target]))


def _draw_step(
    drawing: SvgDrawing, step: StateTransition, number: str, tops: dict[str, float], x: float, lane_offset: float
) -> None:
    """Draw a transition. Starts and ends are offset from the middle of the states, so that arrowheads do not meet."""
    goes_down = tops[step.target] > tops[step.source]
    inset = 6 * (abs(lane_offset) / LANE - 1) % 12
    start = tops[step.source] + (STATE_HEIGHT - 6 - inset if goes_down else 6 + inset)
    end = tops[step.target] + (6 + inset if goes_down else STATE_HEIGHT - 6 - inset)
    drawing.path(f"M{x:g} {start:g}H{x + lane_offset:g}V{end:g}H{x:g}", "soft", arrow=True)
    middle = (start + end) / 2
    drawing.dot(x + lane_offset, middle, 9, "page")
    drawing.text(x + lane_offset, middle + 4.5, number, 12, anchor="middle", strong=True, colour="one")
