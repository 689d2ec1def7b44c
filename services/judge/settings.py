"""Settings of a judge worker, from environment variables."""

from pydantic import Field

from shared.redis_settings import RedisSettings
from shared.settings import ServiceSettings


class JudgeSettings(ServiceSettings, RedisSettings):
    """``SANDBOX_URLS`` (comma-separated) replaces the URL that the run's config names."""

    sandbox_urls: str = Field(default="", validation_alias="SANDBOX_URLS")
    name: str = Field(default="", validation_alias="PLUMBLINE_JUDGE_NAME")
    lease_ttl: float = Field(default=10.0, gt=0, validation_alias="PLUMBLINE_JUDGE_LEASE_TTL")

    @property
    def sandboxes(self) -> list[str]:
        """URLs of the given sandboxes, without ``/run_code``."""
        urls = [url.strip().rstrip("/") for url in self.sandbox_urls.split(",")]
        return [url.removesuffix("/run_code") for url in urls if url]
