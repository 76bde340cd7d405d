"""Whether the node of this container answers over HTTP: exit code 0, or 1 and why. It reads the config of the node."""

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
"""Where to reach a node that listens on all addresses."""


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
    print(f"/healthz says {status}")
    return 0 if status == 200 else 1


def connect(host: str, port: int, *, has_tls: bool) -> http.client.HTTPConnection:
    if not has_tls:
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    # It asks itself, and nothing secret is sent: a certificate for another name than this one is no reason to be ill.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


if __name__ == "__main__":
    sys.exit(main())
