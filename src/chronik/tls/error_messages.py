"""Readable messages for TLS errors."""

from __future__ import annotations

import ssl
from typing import Final

_REASONS: Final = {
    "HTTP_REQUEST": "the peer does not use TLS",
    "WRONG_VERSION_NUMBER": "the peer does not use TLS",
    "UNSUPPORTED_PROTOCOL": "the peer supports no enabled TLS version",
    "VERSION_TOO_LOW": "the peer supports no enabled TLS version",
    "NO_SHARED_CIPHER": "the peer supports no enabled cipher suite",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer presented no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not trust our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not trust our certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate",
}


def describe_tls_error(error: Exception) -> str:
    """Return a readable message for an error of a TLS connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not trusted: {error.verify_message}"
    code = getattr(error, "reason", None) or str(error)
    return _REASONS.get(code, f"TLS failed: {code}")
