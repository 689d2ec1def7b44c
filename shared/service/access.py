"""Access rules of the HTTP services: who may ask, and in which form.

Every request passes :func:`guard` before its handler: its ``Host`` must name the service, a page of
another site may not ask, the token must be right where one is required, and a body must be JSON
without an encoding. Whatever is refused is refused by its header alone, before a body is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from shared.service.hosts import AllowedHosts
from shared.service.tokens import BearerToken, challenge

# Probes come without a token. What these paths tell then is whether the service works, no more.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/health", "/v1/ping"})
COOKIE = "plumbline_token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN = 80

# Makes an error response from status, message and headers, in the format of the service's API.
ErrorFormat = Callable[[int, str, Mapping[str, str]], web.StreamResponse]


class Status(IntEnum):
    """Statuses of refused requests."""

    UNAUTHORIZED = 401
    FORBIDDEN = 403
    MISDIRECTED = 421
    UNSUPPORTED = 415


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


class RefusedError(Exception):
    """A request that is refused by its header."""

    def __init__(self, status: Status, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def guard(access: Access, errors: ErrorFormat) -> Middleware:
    """Middleware that applies the rules; it belongs before all others of an application."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            _check_host(request, access.hosts)
            _check_origin(request)
            if response := _page_login(request, access):
                return response
            _check_token(request, access)
            _check_body(request)
        except RefusedError as error:
            return errors(error.status, error.message, error.headers)
        return await handler(request)

    return middleware


def _check_host(request: web.Request, hosts: AllowedHosts) -> None:
    """Check the header, and the target of the request where that names a host itself."""
    given = request.headers.get("Host", "")
    if not hosts.admits(given):
        raise _misdirected(given)
    if request.host != given and not hosts.admits(request.url.raw_authority):
        raise _misdirected(request.url.raw_authority)


def _misdirected(host: str) -> RefusedError:
    return RefusedError(
        Status.MISDIRECTED,
        f"the host name {host[:_SHOWN]!r} is not one of this service's; if it is meant to be, add "
        "it to PLUMBLINE_ALLOWED_HOSTS",
    )


def _check_origin(request: web.Request) -> None:
    """Refuse requests that a page of another site makes; following a link is allowed.

    Browsers describe the page in headers that the page cannot change. Older ones send ``Origin``
    only, and other clients none of them.
    """
    headers = request.headers
    if (site := headers.get("Sec-Fetch-Site")) is not None:
        follows = request.method == "GET" and headers.get("Sec-Fetch-Mode") == "navigate"
        allowed = site in ("same-origin", "none") or follows
    elif request.method in _SAFE:
        allowed = True
    else:
        allowed = _same_host(headers.get("Origin"), headers.get("Host", ""))
    if not allowed:
        raise RefusedError(Status.FORBIDDEN, "requests from pages of other sites are refused")


def _same_host(origin: str | None, host: str) -> bool:
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


def _check_token(request: web.Request, access: Access) -> None:
    if access.token is None:
        return
    if request.path in OPEN_PATHS or request.path in access.without_token:
        return
    if not access.admits(request):
        hint = ", or open /?token=… in a browser" if access.page else ""
        message = f"the token is missing or wrong; send it as 'Authorization: Bearer …'{hint}"
        raise RefusedError(Status.UNAUTHORIZED, message, **challenge())


def _check_body(request: web.Request) -> None:
    headers = request.headers
    if "Content-Encoding" in headers:
        for encoding in headers.getall("Content-Encoding"):
            if encoding.strip().lower() != "identity":
                raise RefusedError(
                    Status.UNSUPPORTED,
                    "encoded bodies are not supported; send the body without Content-Encoding",
                    Accept_Encoding="identity",
                )
    if request.method in _SAFE or request.match_info.http_exception is not None:
        return
    kind = headers.get("Content-Type", "")
    if kind != "application/json" and not _is_json(kind):
        raise RefusedError(Status.UNSUPPORTED, "the Content-Type must be application/json")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _page_login(request: web.Request, access: Access) -> web.Response | None:
    """Exchange ``/?token=…`` for a cookie, and remove the token from the address."""
    token = access.token
    if not (access.page and token and request.path == "/" and "token" in request.query):
        return None
    if not token.matches(request.query["token"]):
        raise RefusedError(Status.UNAUTHORIZED, "the token in the address is wrong", **challenge())
    # A relative address, because a proxy may serve the page below a prefix.
    rest = request.rel_url.without_query_params("token").raw_query_string
    headers = {"Location": f"./?{rest}" if rest else "./", "Referrer-Policy": "no-referrer"}
    response = web.Response(status=303, headers=headers)
    secure = request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(COOKIE, token.cookie, httponly=True, samesite="Strict", secure=secure)
    return response
