"""Why TLS came to nothing, in words."""

from __future__ import annotations

import ssl
from typing import Final

_REASONS: Final = {
    "HTTP_REQUEST": "it does not speak TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is allowed here",
    "VERSION_TOO_LOW": "it speaks no version of TLS that is allowed here",
    "NO_SHARED_CIPHER": "it offers no cipher that is allowed here",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust the certificate that it was shown",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust the certificate that it was shown",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate to be shown",
}


def reason_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    code = getattr(error, "reason", None) or str(error)
    return _REASONS.get(code, f"TLS failed: {code}")
