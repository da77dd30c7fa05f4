"""An identity provider: OpenID Connect's discovery, keys, authorization code flow with PKCE, on a port of this machine.

It keeps to the standard (a code counts once, for its client, redirect and verifier); a test that is an attacker changes
what it says by `claims`, `sign` and the like.
"""

import base64
import hashlib
import hmac
import itertools
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Self
from urllib.parse import parse_qs, unquote_plus, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.support.http_server import Answer, Record, ThreadedHttpServer

CLIENT_ID, CLIENT_SECRET = "gateway-page", "s3cret +of/the page"
ACCESS_TOKEN = "for-the-userinfo-endpoint"
Json = dict[str, Any]


@dataclass
class Grant:
    """A code that was given out, and for what."""

    redirect_uri: str
    nonce: str
    challenge: str
    claims: Json
    is_used: bool = False


def json_answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, [("content-type", "application/json")], [json.dumps(body).encode()])


class OidcProvider:
    """`person` are the claims of whoever logs in next."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.keys: dict[str, RSAKey] = {}
        self.kid = self.rotate()
        self.person: Json = {"sub": "ann", "name": "Ann Example", "groups": ["staff"], "org": "acme"}
        self.grants: dict[str, Grant] = {}
        self.asked: list[str] = []
        """Paths of all requests."""
        self.changed: Json = {}
        """Claims of the next id tokens that are not as they should be; None takes one out."""
        self.sign: Callable[[Json], str] = self.signed
        self.metadata_changed: Json = {}
        self.tells_issuer = True
        self.is_broken = False
        self.userinfo: Json = {}
        """What its userinfo endpoint tells."""
        self.shows_a_page = False
        """Whether a person has to go on by a link, as by a form: then the browser comes back from another site."""
        self._server = ThreadedHttpServer(self._respond)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    def rotate(self, *, keeps: bool = False) -> str:
        """Signs with another key from now on; those before are published no more."""
        if not keeps:
            self.keys.clear()
        self.kid = f"key-{next(self._numbers)}"
        self.keys[self.kid] = RSAKey.generate_key(2048, {"kid": self.kid, "use": "sig", "alg": "RS256"})
        return self.kid

    def jwks(self) -> Json:
        return {"keys": [key.as_dict(private=False) for key in self.keys.values()]}

    def signed(self, claims: Mapping[str, Any], **header: Any) -> str:
        """A token of these claims, signed as it should be."""
        return jwt.encode({"alg": "RS256", "kid": self.kid, **header}, dict(claims), self.keys[self.kid])

    def token(self, **claims: Any) -> str:
        """A token for the API; a claim that is None is left out."""
        now = int(time.time())
        said = {"iss": self.issuer, "aud": "gateway-api", "sub": "ann", "iat": now, "exp": now + 300, **claims}
        return self.signed({name: value for name, value in said.items() if value is not None})

    def forged(self, claims: Mapping[str, Any], algorithm: str) -> str:
        """The same without the private key: unsigned, or by HMAC with the public key for a secret."""
        header = {"alg": algorithm, "kid": self.kid}
        if algorithm == "none":
            return ".".join([encoded_part(header), encoded_part(claims), ""])
        public = self.keys[self.kid].as_pem(private=False)
        head = f"{encoded_part(header)}.{encoded_part(claims)}"
        return f"{head}.{encoded(hmac.digest(public, head.encode(), 'sha256'))}"

    def _respond(self, record: Record) -> Answer:
        self.asked.append(record.path)
        if self.is_broken:
            return json_answer({"error": "server_error"}, 500)
        query = {name: values[0] for name, values in parse_qs(record.query).items()}
        if record.path == "/.well-known/openid-configuration":
            return json_answer(self._metadata())
        if record.path == "/jwks":
            return json_answer(self.jwks())
        if record.path == "/authorize":
            return self._authorize(query)
        if record.path == "/userinfo":
            known = record.headers.get("authorization") == f"Bearer {ACCESS_TOKEN}"
            return json_answer(self.userinfo) if known else json_answer({"error": "invalid_token"}, 401)
        if record.path == "/token":
            form = {name: values[0] for name, values in parse_qs(record.raw.decode()).items()}
            return self._token(form, record.headers.get("authorization", ""))
        return json_answer({"error": "not_found"}, 404)

    def _metadata(self) -> Json:
        issuer = self.issuer
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/jwks",
            "userinfo_endpoint": f"{issuer}/userinfo",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata_changed,
        }

    def _authorize(self, query: Mapping[str, str]) -> Answer:
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT_ID
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self.grants[code] = Grant(query["redirect_uri"], query["nonce"], query["code_challenge"], dict(self.person))
        told = {"code": code, "state": query["state"], **({"iss": self.issuer} if self.tells_issuer else {})}
        back = f"{query['redirect_uri']}?{urlencode(told)}"
        if self.shows_a_page:
            page = f'<!doctype html><title>Log in</title><a href="{escape(back)}">Go on as Ann</a>'
            return Answer(200, [("content-type", "text/html")], [page.encode()])
        return Answer(302, [("location", back)], [b""])

    def _token(self, form: Mapping[str, str], authorization: str) -> Answer:
        given = base64.b64decode(authorization.partition(" ")[2]).decode().split(":")
        if [unquote_plus(each) for each in given] != [CLIENT_ID, CLIENT_SECRET]:
            return json_answer({"error": "invalid_client"}, 401)
        grant = self.grants.get(form["code"])
        if grant is None or grant.is_used or grant.redirect_uri != form["redirect_uri"]:
            return json_answer({"error": "invalid_grant"}, 400)
        grant.is_used = True
        if encoded(hashlib.sha256(form["code_verifier"].encode()).digest()) != grant.challenge:
            return json_answer({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 60, "nonce": grant.nonce}
        claims |= grant.claims | self.changed
        token = self.sign({name: value for name, value in claims.items() if value is not None})
        return json_answer({"access_token": ACCESS_TOKEN, "token_type": "Bearer", "id_token": token})


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def encoded_part(value: Mapping[str, Any]) -> str:
    return encoded(json.dumps(dict(value)).encode())
