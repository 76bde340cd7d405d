"""Files named by an index, `<20 digits><suffix>`: so that names sort as their indexes do."""

from __future__ import annotations

import re

from chronik.files import FileSystem


def indexed_path(folder: str, index: int, suffix: str) -> str:
    return f"{folder}/{index:020d}{suffix}"


def indexes_in(folder: str, suffix: str, files: FileSystem) -> list[int]:
    """Returns them in order. Names of another form, such as somebody's copy of a file, are not ours and left alone."""
    form = re.compile(rf"([0-9]{{20}}){re.escape(suffix)}")
    matches = (form.fullmatch(name) for name in files.list_folder(folder))
    return sorted(int(match[1]) for match in matches if match is not None)
