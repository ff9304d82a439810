"""Who may talk to the studio: a browser of this machine that was shown the token, and no other web site.

Any page in the same browser can send requests to 127.0.0.1, and a name it owns can be made to point there
(DNS rebinding). So the Host must be ours, an Origin must be ours, and a secret cookie must come along.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

# plotly makes a style element and fills it by script, which needs no leave: the hash is that of an empty one.
EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {EMPTY}; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with that, a browser sends `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Guard:
    """ASGI middleware in front of everything; `refuse(status, title, what to do)` is the answer sent."""

    def __init__(
        self, app, *, token: str, hosts: Collection[str], addresses: bool, cookie: str, refuse: Callable
    ):
        self.app, self.token, self.cookie, self.refuse = app, token, cookie, refuse
        self.hosts = {host.lower() for host in hosts}
        self.addresses = addresses  # any address in numbers is ours too: no DNS answer stands behind one

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        heard = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        answer = self._judge(scope, heard)
        await (answer or self.app)(scope, receive, _with_headers(send, scope["path"]))

    def _judge(self, scope, heard: dict[str, str]):
        """An answer that ends it here, or None."""
        method, path = scope["method"], scope["path"]
        host = heard.get("host", "")
        if not self._ours(host):
            return self.refuse(
                421,
                "Not this host",
                f"The request was for {host or 'no host'}, which is not the studio's name. Open the address "
                f"that heedful studio printed.",
            )
        origin, site = heard.get("origin"), heard.get("sec-fetch-site")
        safe = method in ("GET", "HEAD")
        visiting = safe and heard.get("sec-fetch-mode") == "navigate"
        foreign = (origin is None and not safe) or origin not in (None, f"http://{host}")
        if foreign or (site not in (None, "same-origin", "none") and not visiting):
            return self.refuse(
                403, "Not from another site", "The request came from another web site, or from none it names."
            )
        if path.startswith("/static/"):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if safe and given is not None and self._same(given):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            return _visit(f"{path}?{rest}" if rest else path, f"{self.cookie}={self.token}")
        if not self._same(_cookie(heard.get("cookie", ""), self.cookie)):
            wrong = "The token is not this studio's" if given is not None else "No token came along"
            return self.refuse(
                401,
                "Who is there?",
                f"{wrong}. Open the whole address that heedful studio printed; each start "
                f"has a token of its own.",
            )
        return None

    def _ours(self, host: str) -> bool:
        if host.lower() in self.hosts:
            return True
        name = host.rpartition(":")[0].strip("[]") if self.addresses else ""
        try:
            return bool(name) and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _same(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())


def _cookie(text: str, name: str) -> str:
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def _visit(address: str, cookie: str):
    """Go there, with the cookie; the token leaves the address bar and the history."""

    async def answer(scope, receive, send) -> None:
        address_here = "/" + address.lstrip("/")  # //elsewhere would be another host
        headers = [
            (b"location", address_here.encode("latin-1", "ignore")),
            (b"set-cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Lax".encode()),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return answer


def _with_headers(send, path: str):
    # Figures and pages change as runs go on.
    kept = "no-cache" if path.startswith("/static/") else "no-store"
    added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    added.append((b"cache-control", kept.encode()))

    async def sending(message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", []))  # a page in a frame has a policy of its own
            names = {name.lower() for name, _ in own}
            message = {**message, "headers": own + [pair for pair in added if pair[0] not in names]}
        await send(message)

    return sending
