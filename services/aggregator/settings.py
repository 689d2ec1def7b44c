"""Settings of the aggregator, from environment variables."""

from pathlib import Path

from pydantic import Field

from services.aggregator.output_roots import OutputRoots
from shared.service.settings import RedisSettings, ServiceSettings, Token, TokenFile, token_setting
from shared.text import split_urls


class PageSettings(ServiceSettings):
    """Settings of a process that serves the page: the aggregator, and `plumb view`."""

    index_dir: Path | None = Field(default=None, validation_alias="PLUMBLINE_INDEX_DIR")
    """Folder of the index, for a single aggregator; by default a temporary index is rebuilt at each
    start. `plumb view` keeps its indexes below it, by default in the user's cache folder."""
    gate_policy: Path | None = Field(default=None, validation_alias="PLUMBLINE_GATE_POLICY")
    """Policy by which the page's history judges runs, as of ``plumb gate``; by default the shipped
    ``configs/gate.yaml``."""
    token: Token = Field(default=None, validation_alias="PLUMBLINE_AGGREGATOR_TOKEN")
    """Token that clients must send, as ``Authorization: Bearer …``; a browser opens ``/?token=…``.
    By default none is required."""
    token_file: TokenFile = Field(default=None, validation_alias="PLUMBLINE_AGGREGATOR_TOKEN_FILE")
    """File with that token."""

    def given_token(self) -> str | None:
        return token_setting(self.token, self.token_file, "PLUMBLINE_AGGREGATOR_TOKEN")


class AggregatorSettings(PageSettings, RedisSettings):
    """Settings of the aggregator."""

    interval: float = Field(default=0.2, gt=0, validation_alias="PLUMBLINE_AGGREGATOR_INTERVAL")
    """Seconds between two checks for new stream entries."""
    output_roots: str = Field(default="", validation_alias="PLUMBLINE_OUTPUT_ROOTS")
    """Comma-separated folders or URLs below which artifacts are written; by default wherever a run
    says, that is, wherever somebody with access to Redis says. The page also shows the finished
    runs below them that are no longer in Redis."""

    @property
    def roots(self) -> OutputRoots:
        """The folders below which artifacts are written."""
        return OutputRoots(split_urls(self.output_roots))
