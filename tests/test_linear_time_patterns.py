"""Regular expressions that are applied to untrusted input run in linear time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chronik.api.api_versions import _SOFTWARE
from chronik.configs.broker_key_lookup import _LISTENER_PREFIX
from chronik.configs.validators import _WHOLE
from chronik.console.http import is_loopback_host
from chronik.escaping import escape, escape_except_line_breaks
from chronik.linear_regex import Pattern
from chronik.listeners import _HOST_PORT
from chronik.metadata.names import find_topic_name_error

LETTERS = 25_000
SECONDS_MAX = 0.2
"""Maximum CPU time. Linear patterns take some milliseconds, quadratic ones many seconds."""

PATTERNS: dict[str, Callable[[str], object]] = {
    "software": _SOFTWARE.fullmatch,
    "whole numbers": _WHOLE.fullmatch,
    "configs of listeners": _LISTENER_PREFIX.fullmatch,
    "hosts": is_loopback_host,
    "addresses": _HOST_PORT.fullmatch,
    "topics": find_topic_name_error,
    "client patterns": Pattern(r"((a+)+|(.-?)*|(a|aa)*)+[!x]").matches,
    "a line": escape,
    "lines": escape_except_line_breaks,
}
REPEATED = ("a", "-", " ", "1", ":", ":1", ".", "a-", "\n", "\x1b", "[", "a.")
FIRST_AND_LAST = (("", ""), ("a", "!"), ("+", "x"), ("listener.name.", "\n"), (":", "x"), ("1", " x"))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_pattern_matches_long_input_in_linear_time(pattern: Callable[[str], object]) -> None:
    for repeated in REPEATED:
        for first, last in FIRST_AND_LAST:
            text = first + repeated * (LETTERS // len(repeated)) + last
            began = time.process_time()
            pattern(text)
            assert time.process_time() - began < SECONDS_MAX, f"{first!r} {repeated!r} {last!r}"
