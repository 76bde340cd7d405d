"""Health check of the container: exit code 0 if the node responds over HTTP, else 1 with the reason on stderr."""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from pathlib import Path

from chronik.config import load_config
from chronik.errors import ConfigError

TIMEOUT_SECONDS = 5.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to reach a node that listens on all interfaces."""


def main() -> int:
    file = os.environ.get("CHRONIK_CONFIG")
    try:
        config = load_config(Path(file) if file else None)
        if config.http is None:
            raise ConfigError("http is not set")
        host = EVERYWHERE.get(config.http.host, config.http.host)
        connection = connect(host, config.http.port, has_tls=config.http_keystore is not None)
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (ConfigError, OSError, http.client.HTTPException) as error:
        print(f"unhealthy: {error}", file=sys.stderr)
        return 1
    print(f"/healthz returned {status}")
    return 0 if status == 200 else 1


def connect(host: str, port: int, *, has_tls: bool) -> http.client.HTTPConnection:
    if not has_tls:
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    # The connection is local and carries no secrets, so the certificate's host name is not verified.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


if __name__ == "__main__":
    sys.exit(main())
