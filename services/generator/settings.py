"""Settings of the generator from the environment; every name begins with PLUMBLINE_GENERATOR_."""

import logging
import shlex
from typing import Annotated, Literal

from pydantic import AliasGenerator, Field, SecretStr, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.service.settings import ServiceSettings

PREFIX = "PLUMBLINE_GENERATOR_"


class GeneratorSettings(ServiceSettings):
    """Times are seconds.

    ``config`` (a run's YAML file) and ``overrides`` (``key=value``, quoted as for a shell) define
    what the backend ``verl`` serves. ``model`` is the name under which the model is served; with
    verl it defaults to that of the config or of the model's folder.

    ``replay_*`` belong to the backend ``replay``.

    ``replay_data`` (comma-separated parquet files or folders) lets a request without a sample's
    name be matched by its prompt. ``replay_failures`` are injected into the next requests, see
    :mod:`services.generator.backends.replay.faults`. ``replay_time_scale`` multiplies the recorded
    ``gen_time``; at 0 answers are immediate.

    ``router_*`` are for backends with engines behind the router (:mod:`services.generator.router`).

    - ``max_in_flight``: concurrent requests on one replica. Below the engine's own limit, so that
      a probe does not queue behind them. Up to ``queue_size`` more wait for a slot.
    - ``deadline``: for a request, including its waiting and its up to ``max_attempts`` attempts.
      ``progress_timeout``: for the next byte of an answer, which is the whole answer if it is not
      streamed; probes detect a replica that hangs long before.
    - ``probe_interval``: time without a token after which a replica is probed for one, with
      ``probe_timeout`` to answer. After ``probe_failures`` failures in a row it is restarted, the
      first time after ``restart_backoff``, and ``restarts_per_hour`` times at most.
    - ``start_timeout``: until a replica has generated its first token. ``stop_timeout``: for its
      shutdown. ``grace``: for the requests in flight when the service is stopped.
    - ``max_body``: bytes of one request, ``max_held`` of all requests in flight.
    - ``default_output``: tokens to expect of a request that sets no limit.
    """

    model_config = SettingsConfigDict(
        # A compose file passes an unset variable as an empty one.
        env_ignore_empty=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: PREFIX + name.upper()),
    )

    backend: Literal["replay", "verl"] = "replay"
    config: str = ""
    overrides: Annotated[tuple[str, ...], NoDecode] = ()
    model: str = "replay"
    api_key: SecretStr | None = None
    replay_completions: str = ""
    replay_data: Annotated[tuple[str, ...], NoDecode] = ()
    replay_latency: float = Field(default=0, ge=0, allow_inf_nan=False)
    replay_error_rate: float = Field(default=0, ge=0, le=1)
    replay_seed: int = 0
    replay_failures: Annotated[tuple[str, ...], NoDecode] = ()
    replay_time_scale: float = Field(default=0, ge=0, allow_inf_nan=False)
    router_max_in_flight: int = Field(default=512, ge=1)
    router_queue_size: int = Field(default=4096, ge=0)
    router_max_body: int = Field(default=32 * 2**20, ge=1)
    router_max_held: int = Field(default=2**30, ge=1)
    router_default_output: int = Field(default=1024, ge=1)
    router_deadline: float = Field(default=3600, gt=0, allow_inf_nan=False)
    router_max_attempts: int = Field(default=4, ge=1)
    router_connect_timeout: float = Field(default=10, gt=0, allow_inf_nan=False)
    router_progress_timeout: float = Field(default=1800, gt=0, allow_inf_nan=False)
    router_probe_interval: float = Field(default=15, gt=0, allow_inf_nan=False)
    router_probe_timeout: float = Field(default=60, gt=0, allow_inf_nan=False)
    router_probe_failures: int = Field(default=3, ge=1)
    router_start_timeout: float = Field(default=1800, gt=0, allow_inf_nan=False)
    router_stop_timeout: float = Field(default=60, gt=0, allow_inf_nan=False)
    router_restart_backoff: float = Field(default=1, ge=0, allow_inf_nan=False)
    router_restarts_per_hour: int = Field(default=10, ge=0)
    router_grace: float = Field(default=20, ge=0, allow_inf_nan=False)
    router_scrape_timeout: float = Field(default=2, gt=0, allow_inf_nan=False)

    @field_validator("replay_data", "replay_failures", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("overrides", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        return tuple(shlex.split(value)) if isinstance(value, str) else value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, level: str) -> str:
        if level.upper() not in logging.getLevelNamesMapping():
            raise ValueError(f"{level!r} is not a log level (DEBUG, INFO, WARNING, ERROR)")
        return level
