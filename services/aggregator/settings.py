"""Settings of the aggregator, from environment variables, and the folders it may write to."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from shared.errors import OutputError
from shared.service.settings import RedisSettings, ServiceSettings, Token, TokenFile
from shared.text import split_urls

_LOCAL = ("", "file", "local")


class OutputRoots:
    """Allow-list of output folders; without any, a run may name any folder.

    A local folder is compared after links are resolved. Other URLs must begin with that of a root,
    including user, host and bucket, and have no parts that lead elsewhere: ``..``, options, or
    fsspec's chains of filesystems (``::``).

    Attributes:
        urls: The roots; none if any folder is allowed.

    Args:
        urls: Local folders, or URLs without options.
    """

    def __init__(self, urls: Sequence[str] = ()) -> None:
        self._local = [Path(path).resolve() for path in map(_local_path, urls) if path is not None]
        self._remote = [url.rstrip("/") for url in urls if _local_path(url) is None]
        self._any = not urls
        self.urls = tuple(urls)

    def check(self, url: str) -> None:
        """Check a run's output folder, before any filesystem is opened for it.

        Raises:
            OutputError: It is below none of the roots.
        """
        if not (self._any or self._allows(url)):
            raise OutputError(
                "the run's output folder is outside PLUMBLINE_OUTPUT_ROOTS of the aggregator; "
                "choose another --output, or allow this one there"
            )

    def _allows(self, url: str) -> bool:
        if "::" in url or "\0" in url or url.startswith("~"):
            return False
        path = _local_path(url)
        if path is None:
            return not _leads_elsewhere(url) and any(
                url == root or url.startswith(f"{root}/") for root in self._remote
            )
        resolved = Path(path).resolve()
        return any(resolved.is_relative_to(root) for root in self._local)


def _local_path(url: str) -> str | None:
    """The path of a local folder; None for a URL of another filesystem."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.removeprefix("file:").removeprefix("local:")
    return rest if scheme in _LOCAL else None


def _leads_elsewhere(url: str) -> bool:
    _, _, rest = url.partition("://")
    parts = rest.split("/")
    return ".." in parts or any(mark in url for mark in ("?", "#", "%", "\\"))


class PageSettings(ServiceSettings):
    """Settings of a process that serves the page: the aggregator, and `plumb view`."""

    index_dir: Path | None = Field(default=None, validation_alias="PLUMBLINE_INDEX_DIR")
    """Folder of the index, for a single aggregator; by default a temporary index is rebuilt at each
    start. `plumb view` keeps its indexes below it, by default in the user's cache folder."""
    gate_policy: Path | None = Field(default=None, validation_alias="PLUMBLINE_GATE_POLICY")
    """Policy by which the page's history judges runs, as of ``plumb gate``; by default the shipped
    ``configs/gate.yaml``."""
    token_variable: ClassVar[str] = "PLUMBLINE_AGGREGATOR_TOKEN"
    token: Token = Field(default=None, validation_alias="PLUMBLINE_AGGREGATOR_TOKEN")
    """Token that clients must send, as ``Authorization: Bearer …``; a browser opens ``/?token=…``.
    By default none is required."""
    token_file: TokenFile = Field(default=None, validation_alias="PLUMBLINE_AGGREGATOR_TOKEN_FILE")
    """File with that token."""


class AggregatorSettings(PageSettings, RedisSettings):
    """Settings of the aggregator."""

    output_roots: str = Field(default="", validation_alias="PLUMBLINE_OUTPUT_ROOTS")
    """Comma-separated folders or URLs below which artifacts are written; by default wherever a run
    says, that is, wherever somebody with access to Redis says. The page also shows the finished
    runs below them that are no longer in Redis."""

    @property
    def roots(self) -> OutputRoots:
        """The folders below which artifacts are written."""
        return OutputRoots(split_urls(self.output_roots))
