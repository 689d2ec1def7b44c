"""Output folder of a run, local or at any fsspec URL, written with atomic file replacement."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Self
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel

from shared.errors import OutputError
from shared.files import atomic_write, remove_abandoned, storage_errors
from shared.redaction import is_redacted, redact, redact_address, remember_address

SUMMARY = "phase0_summary.json"
RUN = "run.json"
GENERATIONS = "generations.jsonl"
VERDICTS = "verdicts.jsonl"
PROBLEMS = "problems.jsonl"
SLICES = "slices.json"
CASES = "cases.jsonl.gz"
REPORT = "report.html"
FILES = (SUMMARY, RUN, GENERATIONS, VERDICTS, PROBLEMS, SLICES)
QA_LOGS = "qa_logs"
WANDB = "wandb"


class OutputFolder:
    """Reads and writes the files of a run; each write replaces the file atomically.

    All methods raise :class:`OutputError` for what cannot be read, written, listed or removed.
    ``shown`` is ``url`` without secrets, for messages and documents.
    """

    def __init__(self, url: str) -> None:
        """Open a folder, which may not exist yet.

        Raises:
            OutputError: No filesystem is installed for this URL, or its secrets were removed when
                it was stored.
        """
        url = url or "."
        remember_address(url)
        self.url = url
        self.shown = redact_address(url)
        if is_redacted(url):
            raise OutputError(f"output {url!r} was stored without its secrets; give it again")
        try:
            # Listings that other processes change must not be remembered.
            self._fs, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise OutputError(f"output {url!r}: {error}") from None

    @classmethod
    def of_file(cls, url: str, example: str) -> tuple[Self, str]:
        """Split the URL of a file to write into its folder and its name.

        Raises:
            OutputError: It names a folder; the message proposes ``example`` in it. Or it is a
                device, which would be replaced, or the folder cannot be used.
        """
        parent, slash, name = url.rpartition("/")
        if not name or Path(url).is_dir():
            raise OutputError(
                f"{url}: a folder; name the file to write, such as {url.rstrip('/')}/{example}"
            )
        if Path(url).exists() and not Path(url).is_file():
            raise OutputError(f"{url}: not a file; name the file to write, such as {example}")
        return cls(parent or ("/" if slash else ".")), name

    @property
    def local(self) -> bool:
        return isinstance(self._fs, LocalFileSystem)

    @property
    def path(self) -> str:
        """The folder without its protocol; absolute for a local one."""
        return str(self._root)

    def write_json(self, name: str, document: object) -> None:
        with self.replacing(name) as file:
            file.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")

    def write_jsonl(self, name: str, records: Iterable[BaseModel]) -> None:
        with self.replacing(name) as file:
            for record in records:
                file.write(record.model_dump_json() + "\n")

    def check_writable(self) -> None:
        """Create the folder, and an empty file in it that is removed."""
        probe = self._join(f".{uuid4().hex}.tmp")
        with self._errors(f"cannot write into {self.shown}"):
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(probe, b"")
            self._fs.rm_file(probe)

    def read_json(self, name: str) -> Any | None:  # noqa: ANN401 - any JSON
        """Read a JSON file; None if it does not exist."""
        with self._errors(f"{self.shown}/{name} cannot be read"):
            try:
                return json.loads(self._fs.cat_file(self._join(name)).decode("utf-8"))
            except (FileNotFoundError, NotADirectoryError):
                return None
            except ValueError as error:
                raise OSError(str(error)) from None

    def download(self, name: str, path: Path) -> None:
        """Copy a file to a local path; missing folders are created."""
        with self._errors(f"{self.shown}/{name} cannot be read"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fs.get_file(self._join(name), str(path))

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with self._errors(f"{self.shown}/{name} cannot be read"):
            return bool(self._fs.exists(self._join(name)))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files and folders that exist."""
        for name in names:
            if self.exists(name):
                with self._errors(f"cannot remove {self.shown}/{name}"):
                    self._fs.rm(self._join(name), recursive=True)

    def names(self, folder: str) -> list[str]:
        """List the file names in a subfolder, sorted; empty if the subfolder does not exist."""
        with self._errors(f"{self.shown}/{folder} cannot be listed"):
            try:
                paths = self._fs.ls(self._join(folder), detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(str(path).rsplit("/", 1)[-1] for path in paths)

    def remove_abandoned(self) -> None:
        """Remove what processes that were killed left of the files that they were writing."""
        if self.local:
            for folder in (self._root, self._join(QA_LOGS)):
                remove_abandoned(Path(folder))

    @contextmanager
    def replacing(self, name: str, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
        """Open a file, for UTF-8 text or bytes, that replaces an earlier one when the block ends.

        Missing subfolders are created.
        """
        try:
            with atomic_write(self._fs, self._join(name), mode) as file:
                yield file
        except OSError as error:
            raise OutputError(
                f"cannot write {self.shown}/{name}: {error.strerror or error}"
            ) from None

    @contextmanager
    def _errors(self, message: str) -> Iterator[None]:
        """Convert the errors of a filesystem and add their cause to the message."""
        try:
            with storage_errors():
                yield
        except OSError as error:
            cause = error.strerror or str(error) or type(error).__name__
            refused = isinstance(error, PermissionError) and not self.local
            advice = "; check the credentials and what they may do" if refused else ""
            raise OutputError(f"{message}: {redact(cause)}{advice}") from None

    def _join(self, name: str) -> str:
        return f"{self._root}/{name}"
