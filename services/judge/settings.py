"""Settings of a judge worker, from the environment."""

from pydantic import Field

from shared.settings import ServiceSettings


class JudgeSettings(ServiceSettings):
    """``SANDBOX_URLS`` (comma-separated) replaces the URL that the run's config names."""

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", validation_alias="REDIS_URL")
    sandbox_urls: str = Field(default="", validation_alias="SANDBOX_URLS")
    name: str = Field(default="", validation_alias="PLUMBLINE_JUDGE_NAME")
    lease_ttl: float = Field(default=10.0, gt=0, validation_alias="PLUMBLINE_JUDGE_LEASE_TTL")
