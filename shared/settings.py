"""Settings that every service reads from the environment under the same names."""

from typing import TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.errors import ConfigError
from shared.schemas import describe

Settings = TypeVar("Settings", bound=BaseSettings)


class ServiceSettings(BaseSettings):
    """``HOST``, ``PORT`` and ``LOG_LEVEL``; a service adds its own with ``PLUMBLINE_`` aliases."""

    model_config = SettingsConfigDict(
        extra="ignore", populate_by_name=True, use_attribute_docstrings=True
    )

    host: str = Field(default="127.0.0.1", validation_alias="HOST")
    """Address to listen on."""
    port: int = Field(default=0, validation_alias="PORT", ge=0, le=65535)
    """Port to listen on; 0 for a free one."""
    log_level: str = Field(default="INFO", validation_alias="LOG_LEVEL")
    """``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``."""


def load_settings(kind: type[Settings]) -> Settings:
    """Read the environment.

    Raises:
        ConfigError: A value is not usable; the message names the variable.
    """
    try:
        return kind()
    except ValidationError as error:
        raise ConfigError(describe(error)) from None
