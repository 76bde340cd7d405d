"""An issuer of OAuth tokens for tests."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey


class TokenIssuer:
    """Signs JSON Web Tokens, and serves them over HTTP while entered. Brokers read its keys from a JWKS file."""

    def __init__(self, directory: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "issuer", "use": "sig"})
        self.file = directory / "jwks.json"
        self.file.write_text(json.dumps(KeySet([self._key]).as_dict(private=False)))
        self._server: ThreadingHTTPServer
        self._thread: threading.Thread

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token_url(self, seconds: float = 300, **claims: str) -> str:
        """Return the URL that issues tokens with the given lifetime and claims."""
        return f"http://127.0.0.1:{self._server.server_port}/?{urlencode({'seconds': seconds, **claims})}"

    def create_token(self, seconds: float, **extra_claims: Any) -> str:
        now = time.time()
        claims = {"sub": "token-user", "iat": now, "exp": now + seconds, "aud": "kafka", "iss": "tests"} | extra_claims
        return jwt.encode({"alg": "RS256", "kid": "issuer"}, claims, self._key)


def _handler(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            claims: dict[str, Any] = dict(parse_qsl(urlsplit(self.path).query))
            seconds = float(claims.pop("seconds"))
            response_body = json.dumps(
                {"access_token": issuer.create_token(seconds, **claims), "expires_in": seconds}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(response_body)))
            self.end_headers()
            self.wfile.write(response_body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
