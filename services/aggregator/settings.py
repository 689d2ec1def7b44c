"""Settings of the aggregator, from the environment."""

from pathlib import Path

from pydantic import Field

from shared.service.settings import RedisSettings, ServiceSettings


class AggregatorSettings(ServiceSettings, RedisSettings):
    """Settings of the aggregator."""

    interval: float = Field(default=0.2, gt=0, validation_alias="PLUMBLINE_AGGREGATOR_INTERVAL")
    """Seconds between two checks for new stream entries."""
    index_dir: Path | None = Field(default=None, validation_alias="PLUMBLINE_INDEX_DIR")
    """Folder of the index, for one aggregator only; by default a temporary index is rebuilt at
    each start."""
