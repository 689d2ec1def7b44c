"""Access rules of the HTTP services: Host names, pages of other sites, tokens.

Every request passes :func:`guard` before its handler. A request is refused by its header alone,
before its body is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from shared.service.hosts import AllowedHosts
from shared.service.tokens import BearerToken

# Probes come without a token. Without it, these paths answer only whether the service works.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/health", "/v1/ping"})
COOKIE = "plumbline_token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="plumbline"'}

# Makes an error response from status, message and headers, in the format of the service's API.
ErrorFormat = Callable[[int, str, Mapping[str, str]], web.StreamResponse]


@dataclass(frozen=True, slots=True)
class Access:
    """Access rules of one service.

    Attributes:
        hosts: Names of the service.
        token: The token that clients must send; None admits every client.
        without_token: Further paths that need none, or whose handlers check it themselves.
        page: Whether ``/`` is a page for browsers, which may bring the token as ``/?token=…`` and
            then have it as a cookie.
    """

    hosts: AllowedHosts = field(default_factory=AllowedHosts)
    token: BearerToken | None = None
    without_token: frozenset[str] = frozenset()
    page: bool = False

    def admits(self, request: web.BaseRequest) -> bool:
        """Whether the request brings the token, if one is required."""
        if self.token is None or self.token.admits(request.headers):
            return True
        return self.page and self.token.admits_cookie(request.cookies.get(COOKIE, ""))


def guard(access: Access, errors: ErrorFormat) -> Middleware:
    """Middleware that applies the rules; it belongs before all others of an application."""
    hint = ", or open /?token=… in a browser" if access.page else ""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not access.hosts.admits(host):
            message = (
                f"the host name {host[:80]!r} is not one of this service's; if it is meant to be, "
                "add it to PLUMBLINE_ALLOWED_HOSTS"
            )
            return errors(HTTPStatus.MISDIRECTED_REQUEST, message, {})
        if request.method not in _SAFE and not _same_host(request.headers.get("Origin"), host):
            return errors(
                HTTPStatus.FORBIDDEN, "requests from pages of other sites are refused", {}
            )
        if access.page and access.token and request.path == "/" and "token" in request.query:
            if access.token.matches(request.query["token"]):
                return _login(request, access.token)
            message = "the token in the address is wrong"
            return errors(HTTPStatus.UNAUTHORIZED, message, _CHALLENGE)
        is_open = request.path in OPEN_PATHS or request.path in access.without_token
        if not is_open and not access.admits(request):
            message = f"the token is missing or wrong; send it as 'Authorization: Bearer …'{hint}"
            return errors(HTTPStatus.UNAUTHORIZED, message, _CHALLENGE)
        return await handler(request)

    return middleware


def _same_host(origin: str | None, host: str) -> bool:
    """Whether a page of this service sends the request; only browsers send ``Origin``."""
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def _login(request: web.Request, token: BearerToken) -> web.Response:
    """Exchange ``/?token=…`` for a cookie, and remove the token from the address."""
    # A relative address, because a proxy may serve the page below a prefix.
    rest = request.rel_url.without_query_params("token").raw_query_string
    headers = {"Location": f"./?{rest}" if rest else "./", "Referrer-Policy": "no-referrer"}
    response = web.Response(status=303, headers=headers)
    secure = request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(COOKIE, token.cookie, httponly=True, samesite="Strict", secure=secure)
    return response
