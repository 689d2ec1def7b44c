"""Address of an HTTP server with its credentials apart, so that the rest can be shown."""

import base64
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from shared.errors import ConfigError
from shared.redaction import is_redacted, redact_address, remember_address, split_address


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """An address to call.

    ``url`` has neither user and password nor a slash at its end; ``authorization`` is the value of
    the header that carries user and password.
    """

    url: str
    authorization: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address; its password may be quoted or not.

        Its secrets are known to :func:`shared.redaction.redact` from then on.

        Raises:
            ConfigError: Its secrets were removed when it was stored.
        """
        if is_redacted(text):
            raise ConfigError(
                f"{text} was stored without its password or tokens; give the whole address again"
            )
        remember_address(text)
        scheme, userinfo, rest, query = split_address(text.strip())
        url = f"{scheme}{rest}{query}".rstrip("/")
        if userinfo is None:
            return cls(url)
        user, _, password = map(unquote, userinfo.partition(":"))
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        return cls(url, f"Basic {basic}")

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request: user and password, if there are any."""
        return {} if self.authorization is None else {"Authorization": self.authorization}

    @property
    def name(self) -> str:
        """Host and port."""
        return split_address(self.url)[2].partition("/")[0]

    def __str__(self) -> str:
        return redact_address(self.url)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"
