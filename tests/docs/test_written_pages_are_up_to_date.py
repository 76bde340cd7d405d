"""What `python -m tools.docs` writes is what stands in docs/."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers.page import IMAGES, PAGE, kept, with_section
from bench.peers.plots import plots
from tests.docs.blocks import ROOT
from tools.docs.__main__ import written

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def test_they_are_as_they_would_be_written_now() -> None:
    old = [str(path) for path, text in written().items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert old == [], "they are written anew by .venv/bin/python -m tools.docs"


def test_figures_beside_kafka_are_those_that_are_kept() -> None:
    peers = kept()
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == with_section(page, peers), "written anew by .venv/bin/python -m bench.peers --draw"
    drawn = {} if peers is None else plots(peers)
    assert {name: (ROOT / IMAGES / name).read_text(encoding="utf-8") for name in drawn} == drawn


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_says_what_it_shows_and_nothing_is_cut_off(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    title, description = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")
    assert title
    assert len(description or "") > len(title)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
