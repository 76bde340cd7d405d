"""Generated pages and images in docs/ are up to date."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers.page import IMAGES, PAGE, load_results, replace_section
from bench.peers.plots import draw_images
from tests.docs.blocks import ROOT
from tools.docs.__main__ import generate_all

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def test_generated_pages_are_up_to_date() -> None:
    outdated = [str(path) for path, text in generate_all().items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert outdated == [], "regenerate them with .venv/bin/python -m tools.docs"


def test_benchmark_page_and_images_match_stored_results() -> None:
    peers = load_results()
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == replace_section(page, peers), "regenerate it with .venv/bin/python -m bench.peers --draw"
    images = {} if peers is None else draw_images(peers)
    assert {name: (ROOT / IMAGES / name).read_text(encoding="utf-8") for name in images} == images


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_svg_images_have_descriptions_and_fit_their_size(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    title, description = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")
    assert title
    assert len(description or "") > len(title)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
