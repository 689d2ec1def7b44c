"""Data of a report as JSON, which replaces the API for the scripts of the page.

``{"run", "performance", "notes", "recorded", "columns", "case_columns", "failures", "problems",
"samples"}``: the first two are responses of the API, ``failures`` pairs of id and
signature. ``samples`` has one row per sample by data set, in the order of the API: the values of
``columns``, then the sample's texts or null. If cases were recorded, they are among the texts, each
with the values of ``case_columns``.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict

from pydantic import ValidationError

from services.aggregator.api import answers
from services.aggregator.index.database import Database
from services.aggregator.index.overview import all_figures, find_run
from services.aggregator.index.performance import performance
from services.aggregator.index.records import read_sample
from services.aggregator.marks import SampleMarks
from services.aggregator.qa_logs import shorten_case
from services.aggregator.report import cases
from services.aggregator.report.samples import (
    Bounds,
    Problems,
    SampleSelection,
    load_index,
    report_language,
    report_problems,
    select_samples,
)
from services.aggregator.report.script_json import by_dataset, compact
from shared import artifacts
from shared.errors import OutputError
from shared.finished_run import FinishedRun
from shared.outlines import ProblemOutline, read_outlines
from shared.schemas import Generation, SampleId, Verdict, describe
from shared.text import shorten_middle

COLUMNS = (
    *("problem_id", "sample_index", "final_status", "detail", "accepted", "pass_ratio"),
    *("cases_passed", "cases_total", "cases_not_run", "output_tokens", "gen_time"),
    *("total_judge_time", "attempts", "judged_at", "flipped", "finish_reason", "extraction"),
    *("cpu_time", "peak_memory", "prompt_length", "failure_id"),
)
_ROWS = (
    f"SELECT dataset, {', '.join(COLUMNS)} FROM samples ORDER BY dataset, problem_id, sample_index"
)
# Signatures of failures, the most frequent ones: each may be that of one sample alone.
_SIGNATURES = (
    "SELECT failure_id, failure FROM samples WHERE failure_id IS NOT NULL "
    "GROUP BY failure_id ORDER BY count(*) DESC, failure_id LIMIT 2000"
)
# Fields of a verdict that the page does not show; there may be thousands of case codes.
_NOT_SHOWN = {"case_codes", "worker", "code"}


class Contents:
    """Data of one finished run for embedding into a page."""

    def __init__(self, run: FinishedRun, database: Database, bounds: Bounds) -> None:
        """Read the run's folder and choose the samples.

        Raises:
            OutputError: A file of the run is invalid.
        """
        self._run, self._database, self._bounds = run, database, bounds
        self._problems = report_problems(read_outlines(run.folder), bounds)
        self._name = load_index(run, database, bounds)
        with database.read() as connection:
            self._shown = select_samples(connection, self._problems, bounds)

        self._cases = cases.CaseTables(run, self._shown.with_texts, bounds)
        self.notes = _notes(run, self._shown, self._problems, self._cases, bounds)

    def json(self) -> Iterator[str]:
        """Yield the JSON in parts; it is safe inside a script element."""
        texts = dict(self._texts())
        with self._database.read() as connection:
            for name, value in self._head(connection).items():
                yield f'{"," if name != "run" else "{"}"{name}":{compact(value)}'
            yield ',"problems":'
            yield from by_dataset(self._problem_parts())
            yield ',"samples":'
            yield from by_dataset(self._row_parts(connection, texts))
            yield "}"

    def _head(self, connection: sqlite3.Connection) -> dict[str, object]:
        run = find_run(connection, self._name)
        assert run is not None
        try:
            detail = answers.run_detail(connection, run, all_figures(connection, run))
        except ValidationError as error:
            raise OutputError(f"{self._run.folder.url}: {describe(error)}") from None
        load = asdict(performance(connection, run))
        return {
            "run": detail.model_dump(mode="json"),
            "performance": load,
            "notes": self.notes,
            "recorded": self._cases.recorded,
            "columns": COLUMNS,
            "case_columns": cases.COLUMNS,
            "failures": [tuple(row) for row in connection.execute(_SIGNATURES)],
        }

    def _problem_parts(self) -> Iterator[tuple[str, str]]:
        """Yield the problems of listed samples, with prompts if a sample's texts are included."""
        listed = {(one.dataset, one.problem_id) for one in self._shown.listed}
        with_texts = {(one.dataset, one.problem_id) for one in self._shown.with_texts}
        for outline in read_outlines(self._run.folder):
            if (problem := (outline.dataset, outline.problem_id)) in listed:
                values: list[object] = [outline.difficulty, outline.tags, outline.quality]
                if problem in with_texts:
                    values.append(shown_prompt(outline, self._bounds))
                yield outline.dataset, compact([outline.problem_id, *values])

    def _row_parts(
        self, connection: sqlite3.Connection, texts: dict[SampleId, str]
    ) -> Iterator[tuple[str, str]]:
        for dataset, *values in connection.execute(_ROWS):
            sample = SampleId(dataset, values[0], values[1])
            if sample in self._shown.listed:
                yield dataset, f"{compact(values)[:-1]},{texts.get(sample, 'null')}]"

    def _texts(self) -> Iterator[tuple[SampleId, str]]:
        with self._database.read() as connection:
            run = find_run(connection, self._name)
            assert run is not None
            for sample in sorted(self._shown.with_texts):
                record = read_sample(connection, run.id, sample)
                assert record is not None
                language = report_language(
                    self._run, sample, self._shown.with_texts[sample], self._bounds
                )
                texts = compact(
                    shown_texts(record.verdict, record.generation, self._bounds, language)
                )
                yield sample, f'{texts[:-1]},"cases":{self._cases.json(sample)}}}'


def shown_prompt(outline: ProblemOutline, bounds: Bounds) -> object:
    """Role and text of each message, or the prompt where they are unknown; shortened."""
    texts = [shorten_middle(text, bounds.characters) for text in outline.texts]
    if not outline.messages:
        return texts[0]
    return [[one.role, text] for one, text in zip(outline.messages, texts, strict=True)]


def shown_texts(
    verdict: Verdict, generation: Generation | None, bounds: Bounds, language: str | None
) -> dict[str, object]:
    """Completion, judged code and verdict of a sample as the page gets them; shortened."""
    most, code = bounds.characters, answers.extracted(generation, verdict)
    case = verdict.first_failed_case
    verdict = verdict.model_copy(update={"first_failed_case": case and shorten_case(case, most)})
    if generation:
        completion = shorten_middle(generation.completion, most)
        generation = generation.model_copy(update={"completion": completion})
    if code:
        code = code.model_copy(update={"text": shorten_middle(code.text, most)})
    return {
        "generation": generation.model_dump(mode="json") if generation else None,
        "code": code.model_dump(mode="json") if code else None,
        "verdict": verdict.model_dump(mode="json", exclude=_NOT_SHOWN),
        "marks": asdict(
            SampleMarks.of(
                generation.completion if generation else "",
                code.text if code else "",
                verdict.first_failed_case,
                language,
            )
        ),
    }


def _notes(
    run: FinishedRun,
    shown: SampleSelection,
    problems: Problems,
    tables: cases.CaseTables,
    bounds: Bounds,
) -> list[str]:
    """List notes for the reader about data that the page omits."""
    notes = []
    listed, with_texts = len(shown.listed), len(shown.with_texts)
    if listed < shown.samples:
        notes.append(
            f"{listed} of {shown.samples} samples are listed; the figures cover all of them."
        )
    if with_texts < shown.samples:
        notes.append(
            f"Prompt, completion and failed case are included for {with_texts} samples, taken in "
            "turn from each data set and status; generations.jsonl and verdicts.jsonl have all."
        )
    if shown.samples and not problems:
        notes.append(
            "The run's folder has no problems.jsonl, so prompts, difficulty and tags are missing."
        )
    if tables.included < tables.cases:
        notes.append(
            f"{tables.included} of {tables.cases} recorded cases are included, of "
            f"{tables.samples} samples, those that failed first; {artifacts.CASES} has all."
        )
    if bounds.highlighted < with_texts:
        notes.append(f"Syntax is highlighted for {bounds.highlighted} samples.")
    return [*notes, *(f"Left out: {line}" for line in dict.fromkeys(run.skipped))]
