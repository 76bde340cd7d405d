"""Run the test vectors of Confluent's Schema Registry against the compatibility rules.

The vectors belong to Confluent and are not part of this repository. Pass the directory of a checkout of
https://github.com/confluentinc/schema-registry:

    python -m tests.registry.vectors /path/to/schema-registry
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chronik.registry.json_schema import parse as parse_json_schema
from chronik.registry.json_schema.comparison import compare
from chronik.registry.schema import InvalidSchemaError

JSON_SCHEMA_FOLDER = Path("json-schema-provider/src/test/resources")
DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)

_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class Verdict(NamedTuple):
    """Whether two schemas are compatible, and the sorted types and paths of their differences."""

    is_compatible: bool
    differences: list[str]


class Mismatch(NamedTuple):
    """A vector whose verdict differs from Confluent's."""

    vector: str
    expected: Verdict
    found: Verdict | str


def run_json_schema_vectors(checkout: Path) -> tuple[int, list[Mismatch]]:
    """Compare the schemas of all vectors. Return the number of vectors and the mismatches."""
    mismatches = []
    vectors = list(_iter_json_schema_vectors(checkout))
    for name, vector in vectors:
        expected = Verdict(vector["compatible"], sorted(vector["changes"]))
        found: Verdict | str
        try:
            found = _compare_json_schemas(vector["original_schema"], vector["update_schema"])
        except InvalidSchemaError as error:
            found = str(error)
        if found != expected:
            mismatches.append(Mismatch(name, expected, found))
    return len(vectors), mismatches


def _iter_json_schema_vectors(checkout: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((checkout / JSON_SCHEMA_FOLDER).glob("diff-*.json")):
        text = _TRAILING_COMMA.sub(r"\1", path.read_text())  # Java's parser accepts them
        for index, vector in enumerate(json.loads(text)):
            yield f"{path.name}[{index}] {vector['description']}", vector


def _compare_json_schemas(original: object, update: object) -> Verdict:
    writer, reader = (parse_json_schema(json.dumps(each), []) for each in (original, update))
    differences = compare(writer.root, reader.root)
    is_compatible = not reader.find_incompatibilities(writer)
    return Verdict(is_compatible, sorted(f"{each.type} {each.path}" for each in differences))


def run_json_schema_vectors_per_draft(checkout: Path) -> Iterator[str]:
    """Compare the schemas of all vectors as if they were of each draft. Yield the counts of equal verdicts."""
    for draft in DRAFTS:
        counts: Counter[str] = Counter()
        for _, vector in _iter_json_schema_vectors(checkout):
            schemas = [
                {**each, "$schema": draft} if isinstance(each, dict) else each
                for each in (vector["original_schema"], vector["update_schema"])
            ]
            try:
                is_equal = _compare_json_schemas(*schemas).is_compatible == vector["compatible"]
            except InvalidSchemaError:
                counts["invalid in this draft"] += 1
            else:
                counts["equal" if is_equal else "different"] += 1
        yield f"{draft}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


RUNNERS: dict[str, Callable[[Path], tuple[int, list[Mismatch]]]] = {"JSON Schema": run_json_schema_vectors}


def main() -> int:
    """Run the vectors of all formats; return 1 if any verdict differs from Confluent's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path, help="directory of a checkout of confluentinc/schema-registry")
    parser.add_argument("--drafts", action="store_true", help="also run the JSON Schema vectors in all drafts")
    arguments = parser.parse_args()
    failures = 0
    for name, run in RUNNERS.items():
        count, mismatches = run(arguments.checkout)
        print(f"{name}: {count} vectors, {count - len(mismatches)} equal verdicts")
        for vector, expected, found in mismatches:
            print(f"  {vector}\n    expected {expected}\n    found    {found}")
        failures += len(mismatches) + (count == 0)
    if arguments.drafts:
        for line in run_json_schema_vectors_per_draft(arguments.checkout):
            print(line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
