"""Generated pages and images in docs/ are up to date."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.results import DIRECTORY
from tests.docs.blocks import ROOT
from tools.docs.__main__ import generate_all
from tools.docs.benchmark_pages import HEADLINES, find_figures

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def test_generated_pages_are_up_to_date() -> None:
    outdated = [str(path) for path, text in generate_all().items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert outdated == [], "regenerate them with .venv/bin/python -m tools.docs"


def test_every_benchmark_headline_is_stored() -> None:
    missing = [headline.what for headline in HEADLINES if find_figures(headline)[0] is None]
    missing += [headline.what for headline in HEADLINES if headline.baseline and find_figures(headline)[1] is None]
    assert missing == [], "adapt HEADLINES in tools/docs/benchmark_pages.py to the tables of the benchmark"


def test_every_benchmark_result_has_a_page() -> None:
    names = {path.stem for path in (ROOT / DIRECTORY).glob("*.json")}
    assert names <= {path.stem for path in (ROOT / DIRECTORY).glob("*.md")}


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
