"""Settings of the generator from the environment; every name begins with PLUMBLINE_GENERATOR_."""

import shlex
from typing import Annotated, ClassVar, Literal

from pydantic import AliasGenerator, Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.service.settings import ServiceSettings, Token, TokenFile

PREFIX = "PLUMBLINE_GENERATOR_"


class GeneratorSettings(ServiceSettings):
    """Settings of the generator. Times are seconds.

    ``replay_*`` belong to the backend ``replay``, ``router_*`` to backends with engines behind the
    router.
    """

    model_config = SettingsConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: PREFIX + name.upper()),
    )

    backend: Literal["replay", "verl"] = "replay"
    """``verl`` runs inference engines, ``replay`` answers with recorded completions."""
    config: str = ""
    """Run configuration (YAML) that the backend ``verl`` serves."""
    overrides: Annotated[tuple[str, ...], NoDecode] = ()
    """``key=value`` overrides of the configuration, quoted as for a shell."""
    model: str = "replay"
    """Model name to serve. For ``verl`` the default is that of the configuration or of the model
    folder."""
    token_variable: ClassVar[str] = PREFIX + "API_KEY"
    token: Token = Field(default=None, validation_alias=PREFIX + "API_KEY")
    """Bearer token that clients must send."""
    token_file: TokenFile = Field(default=None, validation_alias=PREFIX + "API_KEY_FILE")
    """File with that token."""
    replay_completions: str = ""
    """JSON lines file with recorded completions."""
    replay_latency: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Seconds to wait before each answer."""
    router_max_in_flight: int = Field(default=512, ge=1)
    """Concurrent requests per replica. Keep it below the engine's own limit, so that probes are
    served at once."""
    router_queue_size: int = Field(default=4096, ge=0)
    """Requests that may wait for a replica; beyond it clients get 429."""
    router_probe_interval: float = Field(default=15, gt=0, allow_inf_nan=False)
    """Seconds without a token after which a replica is probed."""
    router_probe_timeout: float = Field(default=60, gt=0, allow_inf_nan=False)
    """Seconds for the token that a probe asks for."""
    router_probe_failures: int = Field(default=3, ge=1)
    """Consecutive failed probes before a replica is ejected and restarted."""
    router_start_timeout: float = Field(default=1800, gt=0, allow_inf_nan=False)
    """Seconds until a new replica has produced its first token."""
    router_grace: float = Field(default=20, ge=0, allow_inf_nan=False)
    """Seconds for requests in flight when the service shuts down."""

    @field_validator("overrides", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        return tuple(shlex.split(value)) if isinstance(value, str) else value
