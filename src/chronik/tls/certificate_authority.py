"""A simple certificate authority for tests and for clusters without a PKI.

Only this module imports the library `cryptography`; brokers use certificates through OpenSSL.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
CERTIFICATE_DAYS = 825
"""Validity of server and client certificates in days: the maximum that HTTPS clients accept."""

BACKDATING = timedelta(days=1)
"""Time by which certificates are backdated to tolerate clock skew."""


class IssuedCertificate(msgspec.Struct, frozen=True):
    """A private key and its certificate in PEM format."""

    key: bytes
    certificate: bytes

    @property
    def keystore_pem(self) -> bytes:
        """Return the key followed by the certificate, in the format of Kafka's `ssl.keystore.location`."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        return "Issued(…)"


class CertificateAuthority:
    """A certificate authority that generates P-256 keys and signs their certificates."""

    def __init__(self, name: str, issued: IssuedCertificate | None = None) -> None:
        """Create a new CA, or load an existing one from `issued`."""
        self._key = _generate_key() if issued is None else _load_key(issued.key)
        if issued is None:
            self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            builder = _create_certificate_builder(self._name, self._name, self._key.public_key(), CA_DAYS)
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            builder = builder.add_extension(_build_key_usage(is_ca=True), critical=True)
            self._certificate = builder.sign(self._key, hashes.SHA256())
        else:
            self._certificate = x509.load_pem_x509_certificate(issued.certificate)
            self._name = self._certificate.subject

    @property
    def ca_certificate(self) -> IssuedCertificate:
        """Return the CA's own key and certificate."""
        return IssuedCertificate(_encode_key_pem(self._key), self.certificate_pem)

    @property
    def certificate_pem(self) -> bytes:
        """Return the CA certificate in PEM format, for truststores."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, subject: str | x509.Name, hosts: Iterable[str] = (), *, days: int = CERTIFICATE_DAYS
    ) -> IssuedCertificate:
        """Generate a private key, and issue a certificate for it that is signed by this CA.

        Args:
            subject: The subject as in RFC 4514, such as `CN=node1,O=example`.
            hosts: The DNS names and IP addresses of the certificate.
            days: The validity in days.
        """
        key = _generate_key()
        name = x509.Name.from_rfc4514_string(subject) if isinstance(subject, str) else subject
        builder = _create_certificate_builder(name, self._name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_build_key_usage(is_ca=False), critical=True)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        names = [_host(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(_encode_key_pem(key), certificate.public_bytes(serialization.Encoding.PEM))


def _generate_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the CA key is not an elliptic-curve key (P-256)")
    return key


def _encode_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _create_certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _build_key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
