"""Settings of the aggregator, from environment variables."""

from pathlib import Path

from pydantic import Field

from shared.service.settings import RedisSettings, ServiceSettings


class AggregatorSettings(ServiceSettings, RedisSettings):
    """Settings of the aggregator."""

    interval: float = Field(default=0.2, gt=0, validation_alias="PLUMBLINE_AGGREGATOR_INTERVAL")
    """Seconds between two checks for new stream entries."""
    index_dir: Path | None = Field(default=None, validation_alias="PLUMBLINE_INDEX_DIR")
    """Folder of the index, for a single aggregator; by default a temporary index is rebuilt at each
    start."""
