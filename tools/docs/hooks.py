"""What mkdocs asks of us while it builds the site: pages from outside of docs/, links, pictures, and "More".

It runs in an environment of its own (.tools/docs), which knows the standard library and mkdocs."""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.docs.github_markdown import for_python_markdown, with_links  # noqa: E402 - it is no package of that environment
from tools.docs.states import drawn  # noqa: E402

FROM_OUTSIDE: Final = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "reporting.md": "SECURITY.md",
}
"""Pages of the site, and the files of the repository that they are made of."""
ON_SITE: Final = {name: page for page, name in FROM_OUTSIDE.items()}
DECISIONS: Final = "decisions"
MERMAID: Final = re.compile(r"^( *)```mermaid\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
STATES: Final = "images/states-{}.svg"


def on_config(config: Any) -> Any:
    """Adds decisions, and pages that mkdocs.yml does not name."""
    named = set(_pages_of(config.nav))
    own = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    decisions = [page for page in own if page.startswith(f"{DECISIONS}/")]
    config.nav.append({"Decisions": sorted(decisions, key=lambda page: (not page.endswith("README.md"), page))})
    more = [page for page in own if page not in named and page not in decisions]
    if more:
        config.nav.append({"More": more})
    return config


def _pages_of(nav: list[Any]) -> list[str]:
    pages = []
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            pages += [value] if isinstance(value, str) else _pages_of(value)
    return pages


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for page, name in FROM_OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for picture in MERMAID.finditer(path.read_text(encoding="utf-8")):
            files.append(File.generated(config, _states_uri(picture[2]), content=drawn(picture[2])))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    source = FROM_OUTSIDE.get(uri, f"docs/{uri}")
    markdown = MERMAID.sub(lambda found: _picture(found, uri), markdown)
    if uri == f"{DECISIONS}/README.md":
        markdown += "\n" + "".join(_listed(path) for path in sorted((ROOT / "docs" / DECISIONS).glob("2*.md")))
    return for_python_markdown(with_links(markdown, lambda target: site_target(target, source, uri)))


def _states_uri(mermaid: str) -> str:
    return STATES.format(hashlib.sha256(mermaid.encode()).hexdigest()[:8])


def _picture(found: re.Match[str], uri: str) -> str:
    # As if it were beside the page's source, since links are resolved from there afterwards.
    place = posixpath.relpath(_states_uri(found[2]), posixpath.dirname(uri) or ".")
    return f"![States, and what leads from one to another]({place})"


def _listed(path: Path) -> str:
    title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    return f"- [{title}]({path.name})\n"


def site_target(target: str, source: str, uri: str) -> str | None:
    """Where a link of the file `source`, which is the page `uri` of the site, leads on the site, if anywhere."""
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return target
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if wanted == f"docs/{DECISIONS}":
        wanted += "/README.md"
    if wanted in ON_SITE:
        found = ON_SITE[wanted]
    elif wanted.startswith("docs/"):
        found = wanted.removeprefix("docs/")
    else:
        return None
    return posixpath.relpath(found, posixpath.dirname(uri) or ".") + mark + anchor
