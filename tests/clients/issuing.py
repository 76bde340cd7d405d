"""An issuer of tokens, for brokers and clients that are tested with them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from .securing import TOKEN_USER


class Issuer:
    """Signs tokens; the broker has its keys in a file."""

    def __init__(self, folder: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "issuer", "use": "sig"})
        self.file = folder / "jwks.json"
        self.file.write_text(json.dumps(KeySet([self._key]).as_dict(private=False)))

    def token(self, user: str = TOKEN_USER, seconds: float = 300, **more: Any) -> str:
        now = time.time()
        claims = {"sub": user, "iat": now, "exp": now + seconds, "aud": "kafka", "iss": "tests"} | more
        return jwt.encode({"alg": "RS256", "kid": "issuer"}, claims, self._key)
