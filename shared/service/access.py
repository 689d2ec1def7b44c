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
    service for a browser, but its requests have the page's own name as ``Host``. An IP address was
    not looked up, so it is always allowed: probes of a kubelet and Prometheus' scrapes have it.

    ``patterns`` are further names; ``*.suffix`` allows all names below a suffix, ``*`` any name.

    Raises:
        ValueError: A pattern is no host name.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        # ``localhost`` and the names below it are loopback by RFC 6761 and cannot be registered.
        self._patterns = ["localhost", "*.localhost", *map(_pattern, patterns)]

    def admits(self, host: str) -> bool:
        """Whether a ``Host`` header names this service, with any port; an empty one is HTTP/1.0's.

        Letter case and one dot at the end do not matter; user information or any other character
        that is not part of a host name is refused.
        """
        if not host:
            return True
        if (match := _HOST.fullmatch(host)) is None:
            return False
        bracketed, name = match.groups()
        try:
            return ipaddress.ip_address(bracketed or name).version == (6 if bracketed else 4)
        except ValueError:
            return bool(name) and any(fnmatchcase(name.lower(), own) for own in self._patterns)


def _pattern(text: str) -> str:
    pattern = text.strip().lower().removesuffix(".")
    if pattern != "*" and not re.fullmatch(_NAME, pattern.removeprefix("*.")):
        raise ValueError(
            f"{text.strip()!r} is not a host name: give a name without scheme, port and path, "
            "*.suffix for all names below a suffix, or * for any name"
        )
    return pattern


# Tokens


def read_token(value: str | None, file: Path | str | None, name: str) -> str | None:
    """Read a token from the variable ``name``, else from the file of ``<name>_FILE``, if any.

    Blanks and line ends around a token are not part of it.

    Raises:
        ValueError: The file cannot be read or is empty, or the token cannot be sent in a header;
            the message does not contain the token.
    """
    if not value and not file:
        return None
    if not value:
        name = f"{name}_FILE"
        value = read_secret(Path(str(file)), name)
    if not (token := value.strip()):
        raise ValueError(f"{name}: the token is empty; remove the variable to require none")
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{name}: a token has only visible ASCII characters and no blanks")
    return token


def read_secret(path: Path, name: str) -> str:
    """Read the file with a secret of the variable ``name``, without blanks around it."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{name} {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name} {str(path)!r} is not a text file") from None


def token_from(environment: Mapping[str, str], name: str) -> str | None:
    """Read the token of the variables ``name`` and ``<name>_FILE``, as :func:`read_token`."""
    return read_token(environment.get(name), environment.get(f"{name}_FILE"), name)


def authorization(token: str | None) -> dict[str, str]:
    """Headers with which a client sends the token; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


class BearerToken:
    """A token that the clients of a service must send."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.cookie = hmac.new(self._token, b"plumbline cookie", hashlib.sha256).hexdigest()
        """Value of a browser's cookie, which proves the knowledge of the token."""

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

    ``token`` None admits every client; ``without_token`` are further paths that need none. With
    ``page``, ``/`` is for browsers, which may bring the token as ``/?token=…`` and then have it as
    a cookie.
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
