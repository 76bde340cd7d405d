"""Certificate subjects as RFC 2253 text, formatted like Java, so that Kafka's ACLs and rules apply."""

from __future__ import annotations

import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from chronik.security.certificate_subject import InvalidSubject, format_certificate_subject
from tests.tls.certificates import certificate_authority


def der(name: x509.Name) -> bytes:
    return x509.load_pem_x509_certificate(certificate_authority().issue(name).certificate).public_bytes(Encoding.DER)


def attribute(oid: x509.ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value)


COUNTRY, ORG, UNIT = (
    attribute(NameOID.COUNTRY_NAME, "DE"),
    attribute(NameOID.ORGANIZATION_NAME, "y"),
    NameOID.ORGANIZATIONAL_UNIT_NAME,
)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ([COUNTRY, ORG, attribute(UNIT, "x"), attribute(NameOID.COMMON_NAME, "client")], "CN=client,OU=x,O=y,C=DE"),
        ([attribute(NameOID.COMMON_NAME, "a,b=c+d")], "CN=a\\,b\\=c\\+d"),
        ([attribute(NameOID.COMMON_NAME, ' "#<>;\\ ')], 'CN=\\ \\"\\#\\<\\>\\;\\\\\\ '),
        ([attribute(NameOID.COMMON_NAME, "Zoë ☃")], "CN=Zoë ☃"),
        ([attribute(NameOID.COMMON_NAME, "a\0b")], "CN=a\\00b"),
        (
            [attribute(NameOID.DOMAIN_COMPONENT, "org"), attribute(NameOID.DOMAIN_COMPONENT, "example")],
            "DC=example,DC=org",
        ),
        ([attribute(NameOID.USER_ID, "u"), attribute(NameOID.STATE_OR_PROVINCE_NAME, "S")], "ST=S,UID=u"),
        ([attribute(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([], ""),
    ],
)
def test_subject_is_formatted_by_rfc_2253(attributes: list[x509.NameAttribute[str]], expected: str) -> None:
    assert format_certificate_subject(der(x509.Name(attributes))) == expected


def test_multi_valued_rdn_is_joined_with_plus() -> None:
    both = x509.RelativeDistinguishedName([attribute(NameOID.COMMON_NAME, "a"), attribute(NameOID.USER_ID, "b")])
    assert sorted(format_certificate_subject(der(x509.Name([both]))).split("+")) == ["CN=a", "UID=b"]


def test_subject_equals_rfc4514_string_of_cryptography() -> None:
    rng = random.Random(1)
    kinds = [NameOID.COMMON_NAME, UNIT, NameOID.ORGANIZATION_NAME, NameOID.LOCALITY_NAME, NameOID.DOMAIN_COMPONENT]
    for _ in range(50):
        name = x509.Name(
            [attribute(rng.choice(kinds), "".join(rng.choices("abcXYZ 0189.-", k=8)).strip() or "-") for _ in range(6)]
        )
        assert format_certificate_subject(der(name)) == name.rfc4514_string()


def test_corrupted_certificate_is_parsed_or_rejected() -> None:
    rng = random.Random(2)
    whole = der(x509.Name([attribute(NameOID.COMMON_NAME, "client")]))
    for _ in range(3000):
        wrong = bytearray(whole[: rng.randrange(len(whole))] if rng.random() < 0.5 else whole)
        for _ in range(rng.randrange(4)):
            if wrong:
                wrong[rng.randrange(len(wrong))] = rng.randrange(256)
        try:
            assert isinstance(format_certificate_subject(bytes(wrong)), str)
        except InvalidSubject:
            continue
