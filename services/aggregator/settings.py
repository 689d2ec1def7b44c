"""Settings of the aggregator, from the environment."""

from pydantic import Field

from shared.settings import ServiceSettings


class AggregatorSettings(ServiceSettings):
    """``interval``: seconds between two looks at runs that have nothing new."""

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", validation_alias="REDIS_URL")
    interval: float = Field(default=0.2, gt=0, validation_alias="PLUMBLINE_AGGREGATOR_INTERVAL")
