"""Who may ask, and under which id a request goes."""

import hmac
import uuid
from collections.abc import Mapping

from pydantic import SecretStr

from services.generator.protocol import RequestError

_LONGEST_ID = 512


class Access:
    """Wants ``key`` as a bearer token; None lets everybody in."""

    def __init__(self, key: SecretStr | None) -> None:
        # A key that was read from a file often ends in a newline, which no header may hold.
        self._expected = _bytes(f"Bearer {key.get_secret_value().strip()}") if key else None

    def check(self, headers: Mapping[str, str]) -> None:
        """Let a request pass.

        Raises:
            RequestError: 401, the token is missing or another.
        """
        given = _bytes(headers.get("Authorization", ""))
        if self._expected is not None and not hmac.compare_digest(given, self._expected):
            raise RequestError(401, "Incorrect API key provided", code="invalid_api_key")


def request_id(headers: Mapping[str, str]) -> str:
    """The client's own id, or a new one where it has none that a header could carry on."""
    given = headers.get("X-Request-Id", "")
    usable = given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_ID
    return given if usable else uuid.uuid4().hex


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
