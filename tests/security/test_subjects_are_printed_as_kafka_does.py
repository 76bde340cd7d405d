"""The subject of a certificate, by RFC 2253, as Java prints it: what ACLs and rules of a Kafka say fits here."""

from __future__ import annotations

import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from chronik.security.subjects import BadSubject, subject_of
from tests.tls.certificates import authority


def der(name: x509.Name) -> bytes:
    return x509.load_pem_x509_certificate(authority().issue(name).certificate).public_bytes(Encoding.DER)


def one(oid: x509.ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value)


COUNTRY, ORG, UNIT = (
    one(NameOID.COUNTRY_NAME, "DE"),
    one(NameOID.ORGANIZATION_NAME, "y"),
    NameOID.ORGANIZATIONAL_UNIT_NAME,
)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ([COUNTRY, ORG, one(UNIT, "x"), one(NameOID.COMMON_NAME, "client")], "CN=client,OU=x,O=y,C=DE"),
        ([one(NameOID.COMMON_NAME, "a,b=c+d")], "CN=a\\,b\\=c\\+d"),
        ([one(NameOID.COMMON_NAME, ' "#<>;\\ ')], 'CN=\\ \\"\\#\\<\\>\\;\\\\\\ '),
        ([one(NameOID.COMMON_NAME, "Zoë ☃")], "CN=Zoë ☃"),
        ([one(NameOID.COMMON_NAME, "a\0b")], "CN=a\\00b"),
        ([one(NameOID.DOMAIN_COMPONENT, "org"), one(NameOID.DOMAIN_COMPONENT, "example")], "DC=example,DC=org"),
        ([one(NameOID.USER_ID, "u"), one(NameOID.STATE_OR_PROVINCE_NAME, "S")], "ST=S,UID=u"),
        ([one(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([], ""),
    ],
)
def test_names_come_in_the_order_of_rfc_2253(attributes: list[x509.NameAttribute[str]], expected: str) -> None:
    assert subject_of(der(x509.Name(attributes))) == expected


def test_several_at_one_place_are_joined_by_a_plus() -> None:
    both = x509.RelativeDistinguishedName([one(NameOID.COMMON_NAME, "a"), one(NameOID.USER_ID, "b")])
    assert sorted(subject_of(der(x509.Name([both]))).split("+")) == ["CN=a", "UID=b"]


def test_ordinary_names_are_those_of_another_implementation() -> None:
    dice = random.Random(1)
    kinds = [NameOID.COMMON_NAME, UNIT, NameOID.ORGANIZATION_NAME, NameOID.LOCALITY_NAME, NameOID.DOMAIN_COMPONENT]
    for _ in range(50):
        name = x509.Name(
            [one(dice.choice(kinds), "".join(dice.choices("abcXYZ 0189.-", k=8)).strip() or "-") for _ in range(6)]
        )
        assert subject_of(der(name)) == name.rfc4514_string()


def test_what_is_no_certificate_is_refused_whatever_it_is() -> None:
    dice = random.Random(2)
    whole = der(x509.Name([one(NameOID.COMMON_NAME, "client")]))
    for _ in range(3000):
        wrong = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.5 else whole)
        for _ in range(dice.randrange(4)):
            if wrong:
                wrong[dice.randrange(len(wrong))] = dice.randrange(256)
        try:
            assert isinstance(subject_of(bytes(wrong)), str)
        except BadSubject:
            continue
