"""`ssl.principal.mapping.rules`: the examples of Kafka's own documentation and tests, and what is refused."""

from __future__ import annotations

import random
import re
import time

import pytest

from chronik.errors import ConfigError
from chronik.patterns import PatternError
from chronik.security.captures import Capturing
from chronik.security.principal_rules import NoRuleApplies, PrincipalRules

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
def test_the_first_rule_that_applies_makes_the_name(rules: str, subject: str, expected: str) -> None:
    assert PrincipalRules(rules).name_of(subject) == expected


def test_a_subject_that_no_rule_applies_to_is_nobody() -> None:
    rules = PrincipalRules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/")
    for subject in ("CN=a", "", "CN=,OU=ServiceUsers"):
        with pytest.raises(NoRuleApplies, match="has no rule for the subject"):
            rules.name_of(subject)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("default", "expected DEFAULT or RULE:pattern/replacement/"),
        ("", "expected one rule at least"),
        ("DEFAULT/L", "expected DEFAULT or RULE:"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1/LU", "expected DEFAULT or RULE:"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/L", "expected DEFAULT or RULE:"),
        ("RULE:(?=a)b/$1/", "expected expressions of RE2"),
        ("RULE:(a/$1/", "expected expressions of RE2"),
        (f"RULE:{'a' * 1001}/$1/", "expected expressions of RE2"),
    ],
)
def test_rules_that_cannot_be_read_are_refused_in_one_line(rules: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PrincipalRules(rules)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1500


def test_groups_are_those_of_another_implementation() -> None:
    dice = random.Random(3)
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
        expression = "".join(dice.choices(parts, k=dice.randrange(1, 5)))
        text = "".join(dice.choices("ab", k=dice.randrange(7)))
        expected = re.compile(expression, re.DOTALL).fullmatch(text)
        found = Capturing(expression).groups(text)
        assert (found is None) == (expected is None), (expression, text)
        if expected is not None and found is not None:
            compared += 1
            assert found == (expected[0], *(each or "" for each in expected.groups())), (expression, text)
    assert compared > 300


def test_no_subject_makes_them_slow() -> None:
    """Python's own expressions would take longer than the sun will shine."""
    rules = PrincipalRules("RULE:^((a+)+)+b$/$1/,DEFAULT")
    subject = "a" * 1024
    began = time.process_time()
    assert rules.name_of(subject) == subject
    assert PrincipalRules("RULE:^((a+)+)+$/$1/").name_of(subject) == subject
    assert time.process_time() - began < 1.0


def test_time_grows_with_the_groups_and_not_beyond() -> None:
    def seconds(groups: int) -> float:
        """The quickest of three, of a processor's time."""
        rule, spent = Capturing("(.*)*" * groups), []
        for _ in range(3):
            began = time.thread_time()
            assert rule.groups("a" * 100) is not None
            spent.append(time.thread_time() - began)
        return min(spent)

    assert seconds(190) < 2 * 19 * seconds(10)


def test_garbage_is_a_rule_or_is_refused() -> None:
    dice = random.Random(4)
    for _ in range(3000):
        text = "".join(
            dice.choices(["RULE:", "DEFAULT", "/", "$1", "(", ")", "*", ",", "\\", "a", "[", "]", "{9}", "L"], k=9)
        )
        try:
            rules = PrincipalRules(text)
            rules.name_of("a" * 20)
        except (ConfigError, NoRuleApplies, PatternError):
            continue
