"""An OpenID Connect provider for tests, which can return any response, including invalid ones."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

CLIENT_ID = "chronik-console"
CLIENT_SECRET = "s3cret/with+special=characters"
USER = "alice@example.com"


class IdentityProvider:
    """A provider that verifies requests strictly, and whose ID tokens and responses tests can change."""

    def __init__(self, client_secret: str | None = CLIENT_SECRET) -> None:
        self.client_secret = client_secret
        self.key = RSAKey.generate_key(2048, {"kid": "provider", "use": "sig"})
        self.claims: dict[str, Any] = {}
        """Claims that replace those of the next ID tokens; None removes a claim."""
        self.metadata: dict[str, Any] = {}
        """Values that replace those of the discovery document."""
        self.sign: Callable[[dict[str, Any]], str] = self.sign_correctly
        self.respond: Callable[[BaseHTTPRequestHandler], bool] = lambda handler: False
        """Called with each request to the token endpoint; True if it has sent a response."""
        self.errors: list[str] = []
        """What was wrong with rejected requests."""
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _build_handler(self))
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self) -> None:
        self.claims, self.metadata, self.sign = {}, {}, self.sign_correctly
        self.respond = lambda handler: False

    def authorize(self, login_url: str) -> str:
        """Log a user in, as the provider's login page does, and return the URL to which the browser is redirected."""
        parts = urlsplit(login_url)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.issuer}/authorize"
        request = {name: values[0] for name, values in parse_qs(parts.query, strict_parsing=True).items()}
        assert request["response_type"] == "code"
        assert request["client_id"] == CLIENT_ID
        assert request["code_challenge_method"] == "S256"
        assert "openid" in request["scope"].split()
        code = secrets.token_urlsafe()
        self._codes[code] = request
        answer = {"code": code, "state": request["state"], "iss": self.issuer}
        return f"{request['redirect_uri']}?{urlencode(answer)}"

    def discovery_document(self) -> dict[str, Any]:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
        }
        return document | self.metadata

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the response of the token endpoint."""
        request = self._codes.pop(form.get("code", ""), None)
        problem = self._find_problem(request, form, authorization)
        if problem or request is None:
            self.errors.append(problem or "")
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "248289761001",
            "email": USER,
            "email_verified": True,
            "iat": now,
            "exp": now + 300,
            "nonce": request["nonce"],
        }
        claims = {name: value for name, value in (claims | self.claims).items() if value is not None}
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": self.sign(claims)}

    def _find_problem(self, request: dict[str, str] | None, form: dict[str, str], authorization: str) -> str:
        if request is None:
            return "unknown code"
        if form.get("grant_type") != "authorization_code" or form.get("redirect_uri") != request["redirect_uri"]:
            return "wrong grant"
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != request["code_challenge"]:
            return "wrong verifier"
        if self.client_secret is None:
            return "" if form.get("client_id") == CLIENT_ID and not authorization else "wrong client"
        if "client_secret_post" in self.metadata.get("token_endpoint_auth_methods_supported", ()):
            return "" if form.get("client_secret") == self.client_secret and not authorization else "wrong secret"
        expected = urlencode({CLIENT_ID: self.client_secret}).replace("=", ":", 1)
        sent = b64decode(authorization.removeprefix("Basic ")).decode()
        return "" if sent == expected else "wrong secret"

    def sign_correctly(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": "provider"}, claims, self.key)

    def sign_with_other_key(self, claims: dict[str, Any]) -> str:
        key = RSAKey.generate_key(2048, {"kid": "provider"})
        return jwt.encode({"alg": "RS256", "kid": "provider"}, claims, key)

    def sign_with_client_secret(self, claims: dict[str, Any]) -> str:
        """Sign with the secret that the client knows, too: HS256 is not accepted."""
        return jwt.encode(
            {"alg": "HS256", "kid": "provider"}, claims, OctKey.import_key(self.client_secret or "x" * 32)
        )

    def leave_unsigned(self, claims: dict[str, Any]) -> str:
        parts = ({"alg": "none", "kid": "provider"}, claims)
        return ".".join(urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."


def _build_handler(provider: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            documents: dict[str, Callable[[], Any]] = {
                "/.well-known/openid-configuration": provider.discovery_document,
                "/keys": lambda: KeySet([provider.key]).as_dict(private=False),
            }
            find = documents.get(self.path)
            self.send_json(404 if find is None else 200, {} if find is None else find())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if not provider.respond(self):
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self.send_json(*provider.redeem(form, self.headers.get("Authorization", "")))

        def send_json(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
