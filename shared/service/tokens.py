"""Bearer tokens: reading one from the environment or a file, comparing it in constant time."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path

# The characters that a header can carry unambiguously, and that need no quoting in a file.
_TOKEN = re.compile(r"[\x21-\x7e]+")


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
