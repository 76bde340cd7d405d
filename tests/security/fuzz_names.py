"""Fuzzing of principal mapping rules and certificate subjects."""

from __future__ import annotations

import random
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from chronik.errors import ConfigError
from chronik.limits import TLS_SUBJECT_CHARACTERS_MAX
from chronik.security.certificate_subject import InvalidSubject, format_certificate_subject
from chronik.security.principal_rules import NoMatchingRule, PrincipalRules
from tests.security.fuzz_framework import FuzzTarget, mutate
from tests.tls.certificates import issue_certificate

RULES: Final = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
    r"RULE:CN=(\w+)(?:,.*)?/\$1 $12 $0/",
    "RULE:(a|b|ab)*(c{2,5})?/$1$2$3/L",
)
RULE_PARTS: Final = ("RULE:", "DEFAULT", "/", "//", "\\", "\\/", "$1", "$99999", "$", ",", "L", "U", "é", "\n")
EXPRESSION_PARTS: Final = (
    *("(", ")", "(?:", "(?i)", "*", "+", "?", "{2,}", "{0,1000}", "{1001}", "[a-z]", "[^", "]", "|", "^", ".", "(.*)*"),
    *("\\d", "(a|b)"),
)
FRAGMENTS: Final = tuple(each.encode() for each in (*RULE_PARTS, *EXPRESSION_PARTS))
SUBJECTS: Final = ("CN=client,OU=x,O=y", "CN=a\\,b", "ababababab", "", "CN=É,OU=ß", "2.5.4.5=#1303616263")


def rules_and_subjects(rng: random.Random) -> tuple[str, list[str]]:
    rules = mutate(rng, rng.choice(RULES).encode(), FRAGMENTS).decode(errors="replace")
    subjects = [mutate(rng, rng.choice(SUBJECTS).encode(), FRAGMENTS).decode(errors="replace") for _ in range(3)]
    subjects.append(rng.choice("aC=,b") * TLS_SUBJECT_CHARACTERS_MAX)
    return rules, [subject[:TLS_SUBJECT_CHARACTERS_MAX] for subject in subjects]


def map_subjects(case: tuple[str, list[str]]) -> str:
    rules, subjects = case
    parsed = PrincipalRules(rules)
    outcomes = set()
    for subject in subjects:
        try:
            name = parsed.principal_name(subject)
            assert name, "an empty name"
            assert isinstance(name, str)
            outcomes.add("named")
        except NoMatchingRule:
            outcomes.add("no rule applies")
    return " and ".join(sorted(outcomes))


@cache
def certificate(number: int) -> bytes:
    subjects = ("CN=node", "CN=client,OU=x,O=y")
    return x509.load_pem_x509_certificate(issue_certificate(subjects[number]).certificate).public_bytes(Encoding.DER)


def certificates(rng: random.Random) -> bytes:
    whole = certificate(rng.randrange(2))
    lengths = (b"\x80", b"\x84\xff\xff\xff\xff", b"\x30", b"\x31", b"\x06\x00", b"\x0c", b"\x1e", b"\x1c")
    return mutate(rng, whole[: rng.choice((len(whole), 250))], lengths)


def subject(data: bytes) -> str:
    assert isinstance(format_certificate_subject(data), str)
    return "read"


TARGETS: Final = (
    # An operator's rules may have 2,000 parts: each takes a microsecond per character of a subject.
    FuzzTarget("principal rules", rules_and_subjects, map_subjects, (ConfigError,), seconds_max=5.0),
    FuzzTarget("subjects", certificates, subject, (InvalidSubject,)),
)
