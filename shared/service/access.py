"""Access rules of the HTTP services: Host names, tokens, paths that need none."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # takes long to import
    from aiohttp import web

_NAME = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_HOST = re.compile(rf"(?:\[([0-9A-Fa-f:.]{{2,45}})\]|({_NAME})\.?)(?::[0-9]{{0,5}})?")
# The characters that a header can carry unambiguously, and that need no quoting in a file.
_TOKEN = re.compile(r"[\x21-\x7e]+")
# Probes come without a token. Without it, these paths answer only whether the service works.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/health", "/v1/ping"})
COOKIE = "plumbline_token"


# Host names


class AllowedHosts:
    """Allow-list of Host names, against DNS rebinding: loopback, IP addresses, configured names.

    A page elsewhere whose name is made to resolve to this machine is of the same origin as the
    service for a browser. Its requests have the page's own name as ``Host``.

    An IP address in ``Host`` is always allowed: nothing was looked up, so nothing was rebound. The
    probes of a kubelet and Prometheus' scrapes of pods come with the pod's address.

    Args:
        patterns: Further names; ``*.suffix`` allows all names below a suffix, ``*`` any name. A
            port is not part of a pattern, because every port is allowed.

    Raises:
        ValueError: A pattern is no host name.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        # ``localhost`` and the names below it are loopback by RFC 6761 and cannot be registered.
        self._patterns = ["localhost", "*.localhost", *map(_pattern, patterns)]

    def admits(self, host: str) -> bool:
        """Whether a ``Host`` header names this service; an empty one names nothing, as in HTTP/1.0.

        A port, letter case and one dot at the end do not matter; user information or any other
        character that is not part of a host name is refused.
        """
        if not host:
            return True
        if (match := _HOST.fullmatch(host)) is None:
            return False
        address, name = match.groups()
        if address is not None:
            return _is_address(address, 6)
        name = name.lower()
        return _is_address(name, 4) or any(fnmatchcase(name, own) for own in self._patterns)


def _pattern(text: str) -> str:
    pattern = text.strip().lower().removesuffix(".")
    if pattern != "*" and not re.fullmatch(_NAME, pattern.removeprefix("*.")):
        raise ValueError(
            f"{text.strip()!r} is not a host name: give a name without scheme, port and path, "
            "*.suffix for all names below a suffix, or * for any name"
        )
    return pattern


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


# Tokens


def read_token(value: str | None, file: Path | str | None, name: str) -> str | None:
    """Read a token that is given directly, or in a file such as a mounted secret.

    A value takes precedence over a file. Blanks and line ends around a token are not part of it.

    Args:
        value: Content of the variable ``name``.
        file: Content of the variable ``<name>_FILE``.
        name: The variable, for messages.

    Raises:
        ValueError: The file cannot be read or is empty, or the token cannot be sent in a header;
            the message does not contain the token.
    """
    if not value and not file:
        return None
    if not value:
        name = f"{name}_FILE"
        value = read_secret(Path(str(file)), name)
    token = value.strip()
    if not token:
        raise ValueError(f"{name}: the token is empty; remove the variable to require none")
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{name}: a token has only visible ASCII characters and no blanks")
    return token


def read_secret(path: Path, name: str) -> str:
    """Read a file with a secret, which the variable ``name`` names, without blanks around it.

    Raises:
        ValueError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{name} {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name} {str(path)!r} is not a text file") from None


def token_from(environment: Mapping[str, str], name: str) -> str | None:
    """Read the token of the variables ``name`` and ``<name>_FILE``.

    Raises:
        ValueError: As :func:`read_token`.
    """
    return read_token(environment.get(name), environment.get(f"{name}_FILE"), name)


def authorization(token: str | None) -> dict[str, str]:
    """Headers with which a client sends the token; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


class BearerToken:
    """A token that the clients of a service must send."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.cookie = hmac.new(self._token, b"plumbline cookie", hashlib.sha256).hexdigest()
        """Value of a browser's cookie: proves the knowledge of the token without containing it."""

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has the token in its ``Authorization``."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        return self.matches(token.strip(" ")) and scheme.lower() == "bearer"

    def matches(self, token: str) -> bool:
        """Compare with a token in constant time."""
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token)

    def admits_cookie(self, value: str) -> bool:
        """Whether ``value`` is :attr:`cookie`."""
        return hmac.compare_digest(value.encode("utf-8", "surrogateescape"), self.cookie.encode())


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

    def admits(self, request: "web.BaseRequest") -> bool:
        """Whether the request brings the token, if one is required."""
        if self.token is None or self.token.admits(request.headers):
            return True
        return self.page and self.token.admits_cookie(request.cookies.get(COOKIE, ""))
