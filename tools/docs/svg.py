"""A minimal SVG writer: images for light and dark mode, with a title and a description for accessibility."""

from __future__ import annotations

from html import escape
from typing import Final

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
LETTER: Final = 0.55
"""The average width of a letter relative to the font size, estimated generously."""

LIGHT: Final = {
    "page": "#ffffff",
    "ink": "#1c2733",
    "soft": "#5a6775",
    "rule": "#ccd5dd",
    "box": "#f2f5f7",
    "one": "#00796b",
    "one-soft": "#d5eeea",
    "two": "#3a6ea5",
    "two-soft": "#dbe8f5",
    "three": "#c2560c",
    "three-soft": "#fbe6d6",
}
DARK: Final = {
    "page": "#161b22",
    "ink": "#e6edf3",
    "soft": "#9aa7b4",
    "rule": "#3a4551",
    "box": "#202833",
    "one": "#4db6ac",
    "one-soft": "#173b39",
    "two": "#79b0e8",
    "two-soft": "#1c3149",
    "three": "#ff9e57",
    "three-soft": "#46290f",
}


def _styles() -> str:
    def rules(colours: dict[str, str]) -> str:
        return "".join(f".{name}{{fill:{value}}}.{name}-line{{stroke:{value}}}" for name, value in colours.items())

    dark = f"@media (prefers-color-scheme: dark){{{rules(DARK)}}}"
    return f"text{{font-family:{FONT}}}.strong{{font-weight:600}}{rules(LIGHT)}{dark}"


def text_width(text: str, size: float) -> float:
    return len(text) * size * LETTER


class SvgDrawing:
    """An SVG image. Coordinates are pixels from the upper left; colours are names in LIGHT and DARK."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self._size = (width, height)
        self._title, self._description = title, description
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str, *, line: str = "") -> None:
        outline = f' class="{colour} {line}-line" stroke-width="1.2"' if line else f' class="{colour}"'
        self._add(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"{outline}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        *,
        colour: str = "ink",
        anchor: str = "start",
        strong: bool = False,
    ) -> None:
        """Draw text; `y` is its baseline."""
        weight = " strong" if strong else ""
        attributes = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"'
        self._add(f'<text {attributes} class="{colour}{weight}">{escape(text)}</text>')

    def path(self, data: str, colour: str = "soft", *, width: float = 1.5, arrow: bool = False) -> None:
        marker = ' marker-end="url(#tip)"' if arrow else ""
        self._add(f'<path d="{data}" fill="none" class="{colour}-line" stroke-width="{width:g}"{marker}/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str = "rule", *, width: float = 1) -> None:
        self.path(f"M{x:g} {y:g}L{to_x:g} {to_y:g}", colour, width=width)

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        self._add(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{colour}"/>')

    def _add(self, part: str) -> None:
        self._parts.append(part)

    def to_svg(self) -> str:
        width, height = self._size
        tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" '
            'role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(self._title)}</title>',
            f'<desc id="description">{escape(self._description)}</desc>',
            f"<style>{_styles()}</style>",
            f'<defs>{tip}<path d="M0 0L8 4L0 8z" class="soft"/></marker></defs>',
            f'<rect width="{width:g}" height="{height:g}" rx="8" class="page"/>',
        ]
        return "\n".join([*head, *self._parts, "</svg>", ""])
