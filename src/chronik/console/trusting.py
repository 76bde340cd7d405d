"""How to reach the HTTP port of a node whose own files can be read here: by its certificate, whoever has signed it."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from chronik.errors import ConfigError

_CERTIFICATE: Final = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)


def context_of_own(keystore: Path, *, shows_itself: bool) -> ssl.SSLContext:
    """Trusts who has exactly the certificates in this file, by whatever name. With `shows_itself` it shows them, too:
    that opens where the same CA signs nodes and clients. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate is enough, without the CA above it
    try:
        text = keystore.read_text(encoding="ascii", errors="replace")
        context.load_verify_locations(cadata="\n".join(_CERTIFICATE.findall(text)))
        if shows_itself:
            context.load_cert_chain(keystore, password="")  # never a prompt
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"http_keystore: {keystore}: {getattr(error, 'strerror', None) or error}") from None
    return context
