"""What a report's page is made from, as JSON that the page's own scripts read.

``{"run", "timeline", "notes", "columns", "problems", "samples"}``: the first two are the answers
of the API, ``samples`` has by data set a row per sample (values by ``columns``, then its texts or
null), in the order of the API.
"""

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from services.aggregator.api import answers
from services.aggregator.api.models import ExtractedCode
from services.aggregator.index import Database
from services.aggregator.index.figures import Figures
from services.aggregator.index.overview import find_run, timeline
from services.aggregator.outlines import read_outlines
from services.aggregator.qa_records import shortened
from services.aggregator.report.bounds import Bounds
from services.aggregator.report.samples import Problems, Shown, choose, joined, known, load
from shared.errors import OutputError
from shared.finished_run import FinishedRun
from shared.schemas import (
    FailedCase,
    Generation,
    SampleId,
    Verdict,
    describe,
    without_surrogates,
)

COLUMNS = (
    *("problem_id", "sample_index", "final_status", "detail", "accepted", "pass_ratio"),
    *("cases_passed", "cases_total", "output_tokens", "gen_time", "total_judge_time"),
    *("attempts", "judged_at"),
)
_ROWS = (
    f"SELECT dataset, {', '.join(COLUMNS)} FROM samples ORDER BY dataset, problem_id, sample_index"
)
# Of a verdict that the page does not show, and may have a number for each of thousands of cases.
_UNSEEN = {"case_codes", "worker", "code"}
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


class Contents:
    """A finished run, ready to be written into a page."""

    def __init__(self, run: FinishedRun, database: Database, bounds: Bounds) -> None:
        """Read the run's folder and choose what is shown.

        Raises:
            OutputError: A file of the run cannot be used.
        """
        self._run, self._database, self._bounds = run, database, bounds
        self._problems = known(read_outlines(run.folder), bounds)
        self._name = load(run, database, self._problems, bounds)
        with database.read() as connection:
            self._shown = choose(connection, self._problems, bounds)
        self.notes = _notes(run, self._shown, self._problems)

    def json(self) -> Iterator[str]:
        """Yield the JSON in parts; it holds nothing that could end the script around it."""
        texts = dict(self._texts())
        with self._database.read() as connection:
            for name, value in self._head(connection).items():
                yield f'{"," if name != "run" else "{"}"{name}":{compact(value)}'
            yield ',"problems":'
            yield from _by_dataset(self._problem_parts())
            yield ',"samples":'
            yield from _by_dataset(self._row_parts(connection, texts))
            yield "}"

    def _head(self, connection: sqlite3.Connection) -> dict[str, Any]:
        run = find_run(connection, self._name)
        assert run is not None
        try:
            detail = answers.run_detail(connection, run, Figures())
        except ValidationError as error:
            raise OutputError(f"{self._run.folder.url}: {describe(error)}") from None
        times = answers.timeline_answer(timeline(connection, run.id))
        return {
            "run": detail.model_dump(mode="json"),
            "timeline": times.model_dump(mode="json"),
            "notes": self.notes,
            "columns": COLUMNS,
        }

    def _problem_parts(self) -> Iterator[tuple[str, str]]:
        """The problems of listed samples; prompts where there are other texts of them."""
        listed = {(one.dataset, one.problem_id) for one in self._shown.listed}
        with_texts = {(one.dataset, one.problem_id) for one in self._shown.with_texts}
        for outline in read_outlines(self._run.folder):
            if (problem := (outline.dataset, outline.problem_id)) in listed:
                values = [outline.difficulty, outline.tags]
                if problem in with_texts:
                    values.append(shortened(outline.prompt, self._bounds.characters))
                yield outline.dataset, compact([outline.problem_id, *values])

    def _row_parts(
        self, connection: sqlite3.Connection, texts: dict[SampleId, str]
    ) -> Iterator[tuple[str, str]]:
        for dataset, *values in connection.execute(_ROWS):
            sample = SampleId(dataset, values[0], values[1])
            if sample in self._shown.listed:
                yield dataset, f"{compact(values)[:-1]},{texts.get(sample, 'null')}]"

    def _texts(self) -> Iterator[tuple[SampleId, str]]:
        for verdict, generation in joined(self._run):
            if (sample := verdict.sample) in self._shown.with_texts:
                code = answers.extracted(generation, verdict)
                yield sample, compact(self._detail(verdict, generation, code))

    def _detail(
        self,
        verdict: Verdict,
        generation: Generation | None,
        code: ExtractedCode | None,
    ) -> dict[str, Any]:
        most = self._bounds.characters
        case = verdict.first_failed_case
        verdict = verdict.model_copy(update={"first_failed_case": case and _cut(case, most)})
        if generation:
            completion = shortened(generation.completion, most)
            generation = generation.model_copy(update={"completion": completion})
        if code:
            code = code.model_copy(update={"text": shortened(code.text, most)})
        return {
            "generation": generation.model_dump(mode="json") if generation else None,
            "code": code.model_dump(mode="json") if code else None,
            "verdict": verdict.model_dump(mode="json", exclude=_UNSEEN),
        }


def _notes(run: FinishedRun, shown: Shown, problems: Problems) -> list[str]:
    """What whoever reads the page ought to know of what is not in it."""
    said = []
    listed, with_texts = len(shown.listed), len(shown.with_texts)
    if listed < shown.samples:
        said.append(f"{listed} of {shown.samples} samples are listed; the figures are over all.")
    if with_texts < shown.samples:
        said.append(
            f"Prompt, completion and failed case of {with_texts} samples are in this file, of each "
            "data set and status in turn; the run's generations.jsonl and verdicts.jsonl have all."
        )
    if shown.samples and not problems:
        said.append("The run's folder has no problems.jsonl, so prompts, difficulty and tags lack.")
    return [*said, *(f"Left out: {line}" for line in dict.fromkeys(run.skipped))]


def compact(value: object) -> str:
    """JSON that may stand in a script element: no ``<``, ``>``, ``&`` or line separators."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise OutputError(f"the report cannot be written: {error}") from None
    return without_surrogates(text).translate(_ESCAPES)


def _cut(case: FailedCase, most: int) -> FailedCase:
    texts = {name: getattr(case, name) for name in ("input", "expected", "actual", "stderr")}
    return case.model_copy(
        update={name: text and shortened(text, most) for name, text in texts.items()}
    )


def _by_dataset(parts: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Group parts whose data sets come one after the other into arrays of one object."""
    current: str | None = None
    for dataset, part in parts:
        if dataset == current:
            yield f",{part}"
        else:
            yield f"{'{' if current is None else '],'}{compact(dataset)}:[{part}"
            current = dataset
    yield "{}" if current is None else "]}"
