"""mkdocs hooks: pages from outside docs/, links, diagrams and the navigation.

They run in a separate environment (.tools/docs) with the standard library and mkdocs only.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.docs.github_markdown import replace_links, to_python_markdown  # noqa: E402 - it is no package of that environment
from tools.docs.state_diagram import draw_states  # noqa: E402

EXTERNAL_PAGES: Final = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "reporting.md": "SECURITY.md",
}
"""Site pages by name, and the repository files that they are generated from."""
SITE_PAGE_BY_FILE: Final = {name: page for page, name in EXTERNAL_PAGES.items()}
DECISIONS: Final = "internals/decisions"
MERMAID: Final = re.compile(r"^( *)```mermaid\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
STATES: Final = "images/states-{}.svg"


def on_config(config: Any) -> Any:
    """Add decisions and pages that mkdocs.yml does not list to the navigation."""
    listed_pages = set(_pages_of(config.nav))
    all_pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    decisions = [page for page in all_pages if page.startswith(f"{DECISIONS}/")]
    config.nav.append({"Decisions": sorted(decisions, key=lambda page: (not page.endswith("README.md"), page))})
    unlisted = [page for page in all_pages if page not in listed_pages and page not in decisions]
    if unlisted:
        config.nav.append({"More": unlisted})
    return config


def _pages_of(nav: list[Any]) -> list[str]:
    pages = []
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            pages += [value] if isinstance(value, str) else _pages_of(value)
    return pages


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for page, name in EXTERNAL_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for picture in MERMAID.finditer(path.read_text(encoding="utf-8")):
            files.append(File.generated(config, _states_uri(picture[2]), content=draw_states(picture[2])))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    source = EXTERNAL_PAGES.get(uri, f"docs/{uri}")
    markdown = MERMAID.sub(lambda found: _image_link(found, uri), markdown)
    if uri == f"{DECISIONS}/README.md":
        markdown += "\n" + "".join(_list_item(path) for path in sorted((ROOT / "docs" / DECISIONS).glob("2*.md")))
    return to_python_markdown(replace_links(markdown, lambda target: resolve_link(target, source, uri)))


def _states_uri(mermaid: str) -> str:
    return STATES.format(hashlib.sha256(mermaid.encode()).hexdigest()[:8])


def _image_link(found: re.Match[str], uri: str) -> str:
    # Relative to the page's source, because links are resolved from there afterwards.
    path_to_image = posixpath.relpath(_states_uri(found[2]), posixpath.dirname(uri) or ".")
    return f"![States, and what leads from one to another]({path_to_image})"


def _list_item(path: Path) -> str:
    title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    return f"- [{title}]({path.name})\n"


def resolve_link(target: str, source: str, uri: str) -> str | None:
    """Return the site target of a link in the file `source` (page `uri`), or None if it is not on the site."""
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return target
    repository_path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if repository_path == f"docs/{DECISIONS}":
        repository_path += "/README.md"
    if repository_path in SITE_PAGE_BY_FILE:
        found = SITE_PAGE_BY_FILE[repository_path]
    elif repository_path.startswith("docs/"):
        found = repository_path.removeprefix("docs/")
    else:
        return None
    return posixpath.relpath(found, posixpath.dirname(uri) or ".") + mark + anchor
