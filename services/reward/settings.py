"""Settings of the reward service, from environment variables."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shared.service.settings import (
    RedisSettings,
    SandboxClientSettings,
    ServiceSettings,
    Token,
    TokenFile,
)


class RewardSettings(ServiceSettings, RedisSettings, SandboxClientSettings):
    """Settings of the reward service."""

    port: int = Field(default=8090, validation_alias="PORT", ge=0, le=65535)
    """Port to listen on; 0 for a free one."""
    data: str = Field(default="", validation_alias="PLUMBLINE_REWARD_DATA")
    """Comma-separated parquet files or folders of prepared data, whose problems can be named by
    data set and id. A ``manifest.lock.json`` beside them must match."""
    config: str = Field(default="", validation_alias="PLUMBLINE_REWARD_CONFIG")
    """YAML file of a run, whose sections ``judge`` and ``sandbox`` say how completions are judged;
    by default those of a run without a file."""
    token_variable: ClassVar[str] = "PLUMBLINE_REWARD_TOKEN"
    token: Token = Field(default=None, validation_alias="PLUMBLINE_REWARD_TOKEN")
    """Token that clients must send, as ``Authorization: Bearer …``. By default none is required."""
    token_file: TokenFile = Field(default=None, validation_alias="PLUMBLINE_REWARD_TOKEN_FILE")
    """File with that token."""
    max_pending: int = Field(default=16_384, ge=1, validation_alias="PLUMBLINE_REWARD_MAX_PENDING")
    """Completions in flight; beyond it clients get 429 with ``Retry-After``. A batch may not have
    more."""
    remember: float = Field(
        default=86_400, ge=1, allow_inf_nan=False, validation_alias="PLUMBLINE_REWARD_REMEMBER"
    )
    """Seconds for which an answer is remembered. A million remembered answers take about 600 MB of
    Redis."""
    environment: str = Field(default="", validation_alias="PLUMBLINE_REWARD_ENVIRONMENT")
    """Name of what the sandboxes' programs run on: an answer is remembered under the same one
    alone. Change it with the sandboxes' packages. ``plumb reward --embedded`` sets it for its own
    sandbox, Compose to ``SANDBOX_URLS``."""
    allow_eval: bool = Field(default=False, validation_alias="PLUMBLINE_REWARD_ALLOW_EVAL")
    """Answer ``purpose: train`` for data sets whose role is not ``train``, too: training on the
    test."""
    certificates: Literal["weight"] | Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, validation_alias="PLUMBLINE_REWARD_CERTIFICATES"
    )
    """Use of the certificates beside the data in scores for training. ``weight``: a score is
    multiplied with the problem's q0 + q1 - 1. A number: a problem below it is left out, its scores
    are all 0. By default certificates are not read."""

    samples: str = Field(default="", validation_alias="PLUMBLINE_REWARD_SAMPLES")
    """Folder for a log of rewarded completions, for reading; by default none is kept."""
    sample_every: int = Field(default=100, ge=1, validation_alias="PLUMBLINE_REWARD_SAMPLE_EVERY")
    """Of how many completions one is kept there."""
