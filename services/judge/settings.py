"""Settings of a judge worker, from environment variables."""

from pydantic import Field

from shared.service.settings import RedisSettings, SandboxClientSettings, ServiceSettings


class JudgeSettings(ServiceSettings, RedisSettings, SandboxClientSettings):
    """Settings of a judge worker."""

    name: str = Field(default="", validation_alias="PLUMBLINE_JUDGE_NAME")
    """Name of the worker; by default derived from host and process."""
    concurrency: int = Field(default=16, ge=1, validation_alias="PLUMBLINE_JUDGE_CONCURRENCY")
    """Completions that the process judges at once, of evaluations and of rewards each."""
    lease_ttl: int = Field(default=10, ge=1, validation_alias="PLUMBLINE_JUDGE_LEASE_TTL")
    """Seconds until RQ delivers a job of a dead judge again."""

    drain_seconds: float | None = Field(
        default=None, gt=0, validation_alias="PLUMBLINE_JUDGE_DRAIN_SECONDS"
    )
    """Seconds after SIGTERM until the jobs that are not finished return to the queue; by default
    they are all finished."""
