"""A run's folder read back: what compares, exports and shows runs begins here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from shared import artifacts
from shared.artifacts import OutputFolder
from shared.errors import DataError, OutputError
from shared.json_lines import TornLineError, read_json_lines
from shared.run_record import RunRecord, read_record
from shared.schemas import Generation, SampleId, Verdict, describe

RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True)
class FinishedRun:
    """The artifacts of one run.

    Attributes:
        folder: Where they are.
        run: ``run.json``.
        summary: ``{dataset: {metric: value}}``.
        skipped: Fills while files are read: torn last lines, which are named and left out.
    """

    folder: OutputFolder
    run: Mapping[str, Any]
    summary: Mapping[str, Mapping[str, Any]]
    skipped: list[str] = field(default_factory=list)

    @cached_property
    def record(self) -> RunRecord:
        """``run.json``.

        Raises:
            OutputError: It is of an unknown version, or a field of it cannot be used.
        """
        return read_record(self.run, f"{self.folder.url.rstrip('/')}/{artifacts.RUN}")

    @property
    def name(self) -> str:
        return str(self.run.get("name") or self.run.get("run") or self.folder.url)

    @property
    def datasets(self) -> list[Mapping[str, Any]]:
        """Name, hash and size of each data set."""
        return list(self.run.get("datasets", []))

    def generations(self) -> Iterator[Generation]:
        """Yield the completions in the order of the samples.

        Raises:
            OutputError: While iterating: a line that is none, but for a torn last one.
        """
        return self._records(artifacts.GENERATIONS, Generation)

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts in the order of the samples; errors are those of ``generations``."""
        return self._records(artifacts.VERDICTS, Verdict)

    def verdicts_by_sample(self) -> dict[SampleId, Verdict]:
        return {verdict.sample: verdict for verdict in self.verdicts()}

    def _records(self, name: str, kind: type[RecordT]) -> Iterator[RecordT]:
        path = f"{self.folder.url.rstrip('/')}/{name}"
        try:
            for number, fields in read_json_lines(path):
                yield _record(kind, f"{path}:{number}", fields)
        except TornLineError as error:
            self.skipped.append(str(error))
        except DataError as error:
            raise OutputError(str(error)) from None


def open_run(url: str) -> FinishedRun:
    """Open a run's folder, a local path or any fsspec URL.

    Raises:
        OutputError: There is no finished run in it, or ``run.json`` or the summary are not whole.
    """
    folder = OutputFolder(url)
    run, summary = folder.read_json(artifacts.RUN), folder.read_json(artifacts.SUMMARY)
    if not isinstance(run, dict):
        raise OutputError(
            f"{url}: no run in this folder (no {artifacts.RUN}); name the folder of a finished run"
        )
    if not isinstance(summary, dict):
        raise OutputError(f"{url}: no {artifacts.SUMMARY}; finish the run, or publish it again")
    return FinishedRun(folder, run, summary)


def _record(kind: type[RecordT], place: str, fields: object) -> RecordT:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise OutputError(f"{place}: not a {kind.__name__.lower()} ({describe(error)})") from None
