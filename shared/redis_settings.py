"""Where Redis is, and its password, for everything that talks to it."""

from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class RedisSettings(BaseSettings):
    """``REDIS_URL``, and the password beside it: itself, or in a file as secrets are mounted.

    A password in the URL goes before ``REDIS_PASSWORD``, and that before ``REDIS_PASSWORD_FILE``.
    Once read, ``redis_url`` has it.
    """

    # A compose file passes a variable that is not set as an empty one.
    model_config = SettingsConfigDict(
        extra="ignore",
        populate_by_name=True,
        env_ignore_empty=True,
        use_attribute_docstrings=True,
    )

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", validation_alias="REDIS_URL")
    """Redis server of the ledger."""
    redis_password: SecretStr | None = Field(default=None, validation_alias="REDIS_PASSWORD")
    """Password, if the URL has none."""
    redis_password_file: Path | None = Field(default=None, validation_alias="REDIS_PASSWORD_FILE")
    """File with the password, if neither the URL nor ``REDIS_PASSWORD`` has one."""

    @model_validator(mode="after")
    def _with_password(self) -> Self:
        if password := self._password():
            self.redis_url = _add_password(self.redis_url, password)
        return self

    def _password(self) -> str:
        if self.redis_password is not None:
            return self.redis_password.get_secret_value()
        if self.redis_password_file is None:
            return ""
        try:
            return self.redis_password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"REDIS_PASSWORD_FILE {str(self.redis_password_file)!r} cannot be read: {error}"
            ) from None


def _add_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user, _, rest = parts.netloc.rpartition("@")
    if ":" in user:
        return url
    netloc = f"{user}:{quote(password, safe='')}@{rest}"
    # A path is put behind an empty host only where the slashes are written out.
    return urlunsplit(parts._replace(netloc=netloc))
