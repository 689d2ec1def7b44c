"""Service settings from the environment: address, access, Redis URL and user."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.errors import ConfigError
from shared.schemas import describe
from shared.service.access import AllowedHosts, BearerToken, authorization, read_secret, read_token
from shared.text import split_urls

# An embedded stack replaces the tokens of its environment by empty ones.
Token = Annotated[SecretStr | None, BeforeValidator(lambda value: value or None)]
TokenFile = Annotated[Path | None, BeforeValidator(lambda value: value or None)]

Settings = TypeVar("Settings", bound=BaseSettings)


class _Settings(BaseSettings):
    # A compose file passes an unset variable as an empty one.
    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True, env_ignore_empty=True)

    def _read_token(self, field: str, variable: str) -> str | None:
        """The token of the fields ``field`` and ``<field>_file``, whose first has the variable."""
        value, file = getattr(self, field), getattr(self, f"{field}_file")
        return read_token(value.get_secret_value() if value else None, file, variable)


class ServiceSettings(_Settings):
    """Address, log level and allowed hosts; services add settings of their own.

    A service whose clients must send a token has the fields ``token`` and ``token_file``, and the
    name of the first one's variable.
    """

    token_variable: ClassVar[str] = ""
    _token: str | None = None

    host: str = Field(default="127.0.0.1", validation_alias="HOST")
    """Address to listen on."""
    port: int = Field(default=0, validation_alias="PORT", ge=0, le=65535)
    """Port to listen on; 0 for a free one."""
    log_level: str = Field(default="INFO", validation_alias="LOG_LEVEL")
    """``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias="PLUMBLINE_ALLOWED_HOSTS"
    )
    """Comma-separated host names that the service answers to, in addition to loopback names and
    all IP addresses; ``*.suffix`` for all names below a suffix, ``*`` for any name."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _host_names(cls, value: object) -> object:
        if isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
            AllowedHosts(value)
        return value

    @model_validator(mode="after")
    def _with_token(self) -> Self:
        if self.token_variable:
            self._token = self._read_token("token", self.token_variable)
        return self

    @property
    def bearer(self) -> BearerToken | None:
        """The token that clients must send; None if none is required."""
        return BearerToken(self._token) if self._token else None

    @property
    def hosts(self) -> AllowedHosts:
        """Host names of the service."""
        return AllowedHosts(self.allowed_hosts)


class SandboxClientSettings(_Settings):
    """Addresses of the sandboxes, and the token that their clients send."""

    _sandbox_token: str | None = None

    sandbox_urls: str = Field(default="", validation_alias="SANDBOX_URLS")
    """Comma-separated URLs that replace the config's ``sandbox.url``."""
    sandbox_token: Token = Field(default=None, validation_alias="PLUMBLINE_SANDBOX_TOKEN")
    """Token to send to the sandboxes, if they require one. It goes to those of ``SANDBOX_URLS``
    only."""
    sandbox_token_file: TokenFile = Field(
        default=None, validation_alias="PLUMBLINE_SANDBOX_TOKEN_FILE"
    )
    """File with that token."""

    @model_validator(mode="after")
    def _with_sandbox_token(self) -> Self:
        self._sandbox_token = self._read_token("sandbox_token", "PLUMBLINE_SANDBOX_TOKEN")
        return self

    @property
    def sandboxes(self) -> list[str]:
        """URLs of the given sandboxes, without ``/run_code``."""
        urls = split_urls(self.sandbox_urls)
        return [url.rstrip("/").removesuffix("/run_code") for url in urls]

    @property
    def sandbox_headers(self) -> dict[str, str]:
        """Headers of every request to a sandbox."""
        return authorization(self._sandbox_token)


class RedisSettings(_Settings):
    """``REDIS_URL``, its user, and the password: given directly, or in a file such as a secret.

    A user or password in the URL takes precedence over ``REDIS_USERNAME`` and ``REDIS_PASSWORD``,
    and that over ``REDIS_PASSWORD_FILE``. ``redis_url`` then contains them.
    """

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", validation_alias="REDIS_URL")
    """Redis server of the ledger, or its sentinels: ``redis+sentinel://HOST,HOST/SERVICE/DB``."""
    redis_username: str = Field(default="", validation_alias="REDIS_USERNAME")
    """User of a Redis with access control lists, if the URL has none."""
    redis_password: SecretStr | None = Field(default=None, validation_alias="REDIS_PASSWORD")
    """Password, if the URL has none."""
    redis_password_file: Path | None = Field(default=None, validation_alias="REDIS_PASSWORD_FILE")
    """File with the password, if neither the URL nor ``REDIS_PASSWORD`` has one."""

    redis_sentinel_password: SecretStr | None = Field(
        default=None, validation_alias="REDIS_SENTINEL_PASSWORD"
    )
    """Password of the sentinels, if the URL has none (``sentinel_password=`` in its query)."""

    @model_validator(mode="after")
    def _with_credentials(self) -> Self:
        password = self.redis_password.get_secret_value() if self.redis_password else ""
        if not password and self.redis_password_file:
            password = read_secret(self.redis_password_file, "REDIS_PASSWORD_FILE")
        self.redis_url = _add_credentials(self.redis_url, self.redis_username, password)
        if "+sentinel://" in self.redis_url and self.redis_sentinel_password:
            password = self.redis_sentinel_password.get_secret_value()
            mark = "&" if "?" in self.redis_url else "?"
            if "sentinel_password=" not in self.redis_url:
                self.redis_url += f"{mark}sentinel_password={quote(password, safe='')}"
        return self


def load_settings(kind: type[Settings], **values: Any) -> Settings:  # noqa: ANN401 - of any field
    """Read the environment; ``values``, by field or variable, take precedence.

    Raises:
        ConfigError: A value is invalid; the message names the variable.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        raise ConfigError(describe(error)) from None


def _add_credentials(url: str, username: str, password: str) -> str:
    parts = urlsplit(url)
    user, _, rest = parts.netloc.rpartition("@")
    if ":" in user or not (username or password):
        return url
    user = user or quote(username, safe="")
    netloc = f"{user}:{quote(password, safe='')}@{rest}" if password else f"{user}@{rest}"
    # urlunsplit puts a path after an empty host only if the slashes are written out.
    return urlunsplit(parts._replace(netloc=netloc))
