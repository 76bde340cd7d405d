"""Compare the differences that Chronik finds between Protobuf schemas with Confluent's own test vectors.

Run by hand with a checkout of confluentinc/schema-registry: `python -m tests.registry.protobuf.vectors CHECKOUT`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from chronik.formats.protobuf.built_in import built_in_files
from chronik.registry.protobuf import parse
from chronik.registry.protobuf.differences import SchemaFiles, find_differences
from chronik.registry.protobuf.text import render_file
from chronik.registry.schema import ResolvedReference

RESOURCES = "protobuf-provider/src/test/resources"


def read_schema(case: dict[str, Any], side: str, resources: Path) -> SchemaFiles:
    """Parse the schema of one side of a vector, with its dependencies."""
    text = case[f"{side}_schema"]
    if text.endswith(".proto"):
        text = (resources / text).read_text(encoding="utf-8")
    references = []
    for dependency in case.get(f"{side}_dependencies") or ():
        name = dependency["name"]
        content = dependency.get("dependency") or render_file(built_in_files()[name])
        references.append(ResolvedReference(name, content))
    schema = parse(text, references, is_new=False)
    return SchemaFiles(schema.file, schema.names)


def check_vectors(checkout: Path) -> tuple[int, list[str]]:
    """Return the number of vectors, and a description of each that Chronik does not agree with."""
    resources = checkout / RESOURCES
    count = 0
    disagreements = []
    for path in sorted(resources.glob("diff-*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            count += 1
            differences = find_differences(
                read_schema(case, "original", resources), read_schema(case, "update", resources)
            )
            found = Counter(f"{each.type} {each.path}" for each in differences)
            is_compatible = all(each.is_compatible for each in differences)
            if is_compatible != case["compatible"] or found != Counter(case["changes"]):
                disagreements.append(
                    f"{path.name}: {case['description']}\n  expected {case['compatible']} {case['changes']}\n"
                    f"  found    {is_compatible} {sorted(found.elements())}"
                )
    return count, disagreements


def main() -> None:
    count, disagreements = check_vectors(Path(sys.argv[1]))
    print(*disagreements, sep="\n")
    print(f"{count - len(disagreements)} of {count} vectors agree")
    sys.exit(bool(disagreements) or not count)


if __name__ == "__main__":
    main()
