"""Settings of the aggregator, from the environment."""

from pathlib import Path

from pydantic import Field

from shared.service.settings import RedisSettings, ServiceSettings


class AggregatorSettings(ServiceSettings, RedisSettings):
    """What the aggregator is told.

    ``interval``: seconds between two looks at runs that have nothing new. ``index_dir``: the folder
    of the index, one aggregator's alone; a temporary one, and the index made anew at each start,
    where there is none.
    """

    interval: float = Field(default=0.2, gt=0, validation_alias="PLUMBLINE_AGGREGATOR_INTERVAL")
    index_dir: Path | None = Field(default=None, validation_alias="PLUMBLINE_INDEX_DIR")
