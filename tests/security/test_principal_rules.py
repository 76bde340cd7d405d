"""`ssl.principal.mapping.rules`: examples from Kafka's documentation and tests, and rejected rules."""

from __future__ import annotations

import random
import re
import time

import pytest

from chronik.errors import ConfigError
from chronik.linear_regex import Pattern, PatternError
from chronik.security.principal_rules import NoMatchingRule, PrincipalRules

SUBJECT = "CN=Adam,OU=DemoUnit,O=ProductDept,L=City,ST=State,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        ("DEFAULT", "CN=duke,OU=JavaSoft,O=Sun", "CN=duke,OU=JavaSoft,O=Sun"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=x", "kafka"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L", SUBJECT, "adam@demounit"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=a,ou=b,dc=c,dc=d", "A@B"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT", "OU=x,CN=Kafka.One,O=y", "kafka.one"),
        ("RULE:^CN=nobody$/x/,DEFAULT", "CN=a", "CN=a"),
        (" RULE:^CN=(.*)$/\\$1 $0 $9/ ,", "CN=a", "$1 CN=a $9"),
        ("RULE:^CN=(.)(.*)$/$12/", "CN=abc", "a2"),
        ("RULE:^CN=(.*)\\/(.*)$/$1\\/$2/", "CN=a/b", "a/b"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=sam,O=x", "sam"),
        ("RULE:^CN=(a|ab)(c|bcd)(d*)$/$1-$2-$3/", "CN=abcd", "a-bcd-"),
    ],
)
def test_first_matching_rule_determines_principal_name(rules: str, subject: str, expected: str) -> None:
    assert PrincipalRules(rules).principal_name(subject) == expected


def test_subject_without_matching_rule_is_rejected() -> None:
    rules = PrincipalRules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/")
    for subject in ("CN=a", "", "CN=,OU=ServiceUsers"):
        with pytest.raises(NoMatchingRule, match="matches the certificate subject"):
            rules.principal_name(subject)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("default", "expected DEFAULT or RULE:pattern/replacement/"),
        ("", "expected at least one rule"),
        ("DEFAULT/L", "expected DEFAULT or RULE:"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1/LU", "expected DEFAULT or RULE:"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/L", "expected DEFAULT or RULE:"),
        ("RULE:(?=a)b/$1/", "expected patterns in RE2 syntax"),
        ("RULE:(a/$1/", "expected patterns in RE2 syntax"),
        (f"RULE:{'a' * 1001}/$1/", "expected patterns in RE2 syntax"),
    ],
)
def test_invalid_rules_are_rejected_in_one_line(rules: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        PrincipalRules(rules)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1500


def test_captured_groups_equal_those_of_python_re() -> None:
    rng = random.Random(3)
    parts = [
        "a",
        "b",
        ".",
        "(a)",
        "(b|ab)",
        "(a*)",
        "(a+?)",
        "(?:ab)*",
        "(.*?)",
        "(a{1,2})",
        "(b?)",
        "((a)|b)",
        "[ab]+",
    ]
    compared = 0
    for _ in range(3000):
        expression = "".join(rng.choices(parts, k=rng.randrange(1, 5)))
        text = "".join(rng.choices("ab", k=rng.randrange(7)))
        expected = re.compile(expression, re.DOTALL).fullmatch(text)
        found = Pattern(expression).groups(text)
        assert (found is None) == (expected is None), (expression, text)
        if expected is not None and found is not None:
            compared += 1
            assert found == (expected[0], *(each or "" for each in expected.groups())), (expression, text)
    assert compared > 300


def test_rule_matching_takes_linear_time() -> None:
    """A backtracking engine would take practically forever."""
    rules = PrincipalRules("RULE:^((a+)+)+b$/$1/,DEFAULT")
    subject = "a" * 1024
    began = time.process_time()
    assert rules.principal_name(subject) == subject
    assert PrincipalRules("RULE:^((a+)+)+$/$1/").principal_name(subject) == subject
    assert time.process_time() - began < 1.0


def test_random_rules_are_parsed_or_rejected() -> None:
    rng = random.Random(4)
    for _ in range(3000):
        text = "".join(
            rng.choices(["RULE:", "DEFAULT", "/", "$1", "(", ")", "*", ",", "\\", "a", "[", "]", "{9}", "L"], k=9)
        )
        try:
            rules = PrincipalRules(text)
            rules.principal_name("a" * 20)
        except (ConfigError, NoMatchingRule, PatternError):
            continue
