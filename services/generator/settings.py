"""What the generator reads from the environment; every name begins with PLUMBLINE_GENERATOR_."""

import logging
from typing import Annotated, Literal

from pydantic import AliasGenerator, Field, SecretStr, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.settings import ServiceSettings

PREFIX = "PLUMBLINE_GENERATOR_"


class GeneratorSettings(ServiceSettings):
    """Times are seconds. ``replay_*`` belong to the backend ``replay``.

    ``replay_data`` (comma-separated parquet files or folders) lets a request without a sample's
    name be matched by its prompt. ``replay_failures`` is what the next requests get instead of an
    answer, see :mod:`services.generator.backends.replay.failures`. ``replay_time_scale`` multiplies
    the recorded ``gen_time``; at 0 it is not waited for.
    """

    model_config = SettingsConfigDict(
        # A compose file passes a variable that is not set as an empty one.
        env_ignore_empty=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: PREFIX + name.upper()),
    )

    backend: Literal["replay"] = "replay"
    model: str = "replay"
    api_key: SecretStr | None = None
    replay_completions: str = ""
    replay_data: Annotated[tuple[str, ...], NoDecode] = ()
    replay_latency: float = Field(default=0, ge=0, allow_inf_nan=False)
    replay_error_rate: float = Field(default=0, ge=0, le=1)
    replay_seed: int = 0
    replay_failures: Annotated[tuple[str, ...], NoDecode] = ()
    replay_time_scale: float = Field(default=0, ge=0, allow_inf_nan=False)

    @field_validator("replay_data", "replay_failures", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, level: str) -> str:
        if level.upper() not in logging.getLevelNamesMapping():
            raise ValueError(f"{level!r} is no log level (DEBUG, INFO, WARNING, ERROR)")
        return level
