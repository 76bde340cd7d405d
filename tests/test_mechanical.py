from __future__ import annotations

import pytest

from tools.mechanical import compare

OLD = '''
"""What is done."""
from a import b

class Heir:
    def tell(self, whom):
        """Says it."""
        log.info("told %s", whom)
        return {"count": whom.count + 1}
'''
NEW = '''
"""A successor."""
import c

class Successor:
    """A successor."""

    def notify(self, listener):
        log.info("listener notified listener=%s", listener)
        return {"count": listener.count + 1}
'''


def test_renames_and_rewording_are_no_difference() -> None:
    comparison = compare(OLD, NEW)
    assert comparison.differences(comparison.names) == []
    assert comparison.reworded == 1
    assert set(comparison.names) == {("Heir", "Successor"), ("tell", "notify"), ("whom", "listener")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"count"', '"number"'),
        ("+ 1", "+ 2"),
        ("+ 1", "- 1"),
        ("return {", "yield {"),
        ("        return", "        self.x = 1\n        return"),
        ("count + 1", "count() + 1"),
    ],
)
def test_changed_code_is_reported(old: str, new: str) -> None:
    comparison = compare(OLD, NEW.replace(old, new))
    assert comparison.differences(comparison.names)


def test_renamed_pattern_keyword_is_reported_as_name() -> None:
    comparison = compare("match x:\n    case A(told=1): y()", "match x:\n    case A(reported=1): y()")
    assert set(comparison.names) == {("told", "reported")}
    assert comparison.differences(comparison.names) == []


def test_string_with_renamed_words_is_no_difference() -> None:
    comparison = compare("patch('a.Heir.tell')", "patch('a.Successor.notify')")
    assert comparison.differences({("Heir", "Successor"), ("tell", "notify")}) == []
    assert comparison.differences({("Heir", "Successor")}) == [(1, "'a.Heir.tell' became 'a.Successor.notify'")]
