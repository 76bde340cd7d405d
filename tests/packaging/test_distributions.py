"""The wheel and the source distribution: valid, complete, without extra files, and a node runs from the wheel."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import chronik
from tests.packaging.build_steps import (
    ROOT,
    TOOLS,
    BuildFailed,
    build_packages,
    check_packages,
    create_environment,
    produce_and_consume,
    python_path,
    run_command,
    run_pip,
)

pytestmark = pytest.mark.slow

REQUIRED_PACKAGES = {"uvloop", "msgspec", "crc32c", "cramjam", "google-re2", "h11"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if not (TOOLS / ".ready").exists():
        pytest.skip("build and twine are not installed; run `make package`")
    return build_packages(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def names(packages: tuple[Path, Path]) -> set[str]:
    with zipfile.ZipFile(packages[0]) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def metadata(packages: tuple[Path, Path]) -> Message:
    with zipfile.ZipFile(packages[0]) as wheel:
        return Parser().parsestr(wheel.read(f"chronik-{chronik.__version__}.dist-info/METADATA").decode())


def test_packages_pass_twine_check(packages: tuple[Path, Path]) -> None:
    assert check_packages(packages).count("PASSED") == 2


def test_wheel_contains_exactly_the_source_files(names: set[str]) -> None:
    source = ROOT / "src"
    files = [path for path in source.rglob("*") if path.suffix == ".py" or path.name == "py.typed"]
    files += [path for path in (source / "chronik" / "console" / "web" / "static").rglob("*") if path.is_file()]
    expected = {path.relative_to(source).as_posix() for path in files}
    assert "chronik/py.typed" in expected
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert f"chronik-{chronik.__version__}.dist-info/licenses/LICENSE" in names


def test_source_distribution_contains_docs_but_no_tests(packages: tuple[Path, Path]) -> None:
    with tarfile.open(packages[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert len(pages) > 10
    assert {"LICENSE", "README.md", "CHANGELOG.md", "packaging/Containerfile", "setup.py", *pages} <= names
    top = {name.partition("/")[0] for name in names}
    assert top.isdisjoint({"tests", "bench", "build", "dist", "tools", ".venv", ".tools"})


def test_wheel_metadata(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("chronik", chronik.__version__)
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    required = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert {re.split(r"[>=;]", each)[0] for each in required} == REQUIRED_PACKAGES


def test_description_contains_only_absolute_links(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert "**A Kafka-compatible broker in Python" in text
    assert "See Test with Chronik." in text
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("http")] == []
    assert "## Documentation" not in text


def test_node_runs_from_wheel_in_clean_environment(packages: tuple[Path, Path], tmp_path: Path) -> None:
    environment = create_environment(tmp_path / "fresh")
    try:
        run_pip(environment, "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe"), "h11")
    except BuildFailed as failure:
        pytest.skip(f"PyPI is unreachable: {str(failure).splitlines()[-1]}")
    run_pip(environment, "install", "--quiet", str(packages[0]))
    installed = {path.name.split("-")[0] for path in environment.rglob("*.dist-info")}
    assert {name.replace("_", "-") for name in installed} == REQUIRED_PACKAGES | {"chronik"}
    module_path = run_command([python_path(environment), "-c", "import chronik; print(chronik.__file__)"], cwd=tmp_path)
    assert Path(module_path.strip()).is_relative_to(environment)
    assert produce_and_consume(environment, tmp_path) == "hello\n"
