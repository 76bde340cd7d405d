"""TLS contexts for connecting to the HTTP port of a node on the same machine, by pinning the node's own certificate."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from chronik.errors import ConfigError

_CERTIFICATE: Final = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)


def create_pinned_context(keystore: Path, *, with_client_certificate: bool) -> ssl.SSLContext:
    """Return a client context that accepts exactly the certificates in this file, for any host name.

    With `with_client_certificate`, the context also presents them, which authenticates where the same CA signs nodes
    and clients.

    Raises:
        ConfigError: The file cannot be read or holds no valid certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the certificate itself, without its CA
    try:
        text = keystore.read_text(encoding="ascii", errors="replace")
        context.load_verify_locations(cadata="\n".join(_CERTIFICATE.findall(text)))
        if with_client_certificate:
            context.load_cert_chain(keystore, password="")  # a password prevents a prompt
    except (OSError, ValueError) as error:  # ssl.SSLError is a subclass of OSError
        raise ConfigError(f"http_keystore: {keystore}: {getattr(error, 'strerror', None) or error}") from None
    return context
