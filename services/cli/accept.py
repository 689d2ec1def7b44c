"""`plumb accept`: check a run as a baseline; the warnings at the end of every run."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, TypeVar

import fsspec
from pydantic import BaseModel, ConfigDict, ValidationError
from rich.table import Table
from rich.text import Text
from typer import Option

from services.cli.console import JsonFile, display, say, shown, write_json
from services.cli.options import RunFolder
from shared.analysis.acceptance import SIGNS, AcceptanceReport, report, silent_failures
from shared.analysis.evidence import (
    AcceptanceFinding,
    AnswerCounts,
    Check,
    Evidence,
    Mark,
    PreparedData,
)
from shared.datasets import check_exists
from shared.errors import DataError, FindingsError, OutputError, UndecidedError, data_error, reading
from shared.finished_run import FinishedRun, open_run
from shared.foreign_json import read_json_lines
from shared.manifests import (
    LOCK_NAME,
    DataRole,
    ManifestRow,
    differences,
    load_lock,
    manifest_folder,
)
from shared.redaction import redact_address
from shared.run_record import RunRecord
from shared.schemas import describe

_STYLES = {Mark.PASS: "green", Mark.WARNING: "yellow", Mark.FAILURE: "bold red"}
_REPORT, _OVERLAPS = "audit_report.md", "overlaps.jsonl"


def accept(
    run: RunFolder,
    data: Annotated[
        list[str] | None, Option(help="The run's data or their manifests, if they have moved.")
    ] = None,
    size: Annotated[
        float | None, Option(min=0.001, help="Billions of parameters, for typical ranges.")
    ] = None,
    without: Annotated[list[Check] | None, Option(help="Check to leave out; repeatable.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Check a run as a baseline; exit code 0: accepted, 1: not accepted, 4: with warnings."""
    opened = open_run(run, unpublished=True)
    for place in data or []:
        check_exists(place)
    evidence = _evidence(opened, data or [], size)
    result = report(evidence, opened.folder.shown, without or [])
    _print_report(opened, result)
    for note in opened.skipped:
        say(note, "yellow")
    write_json(json_file, asdict(result))
    checks = len({finding.check for finding in result.findings})
    named = f"{', '.join(result.deciding_checks())} (of {checks} checks)"
    if result.outcome is Mark.FAILURE:
        raise FindingsError(f"not accepted: {named}")
    if result.outcome is Mark.WARNING:
        raise UndecidedError(f"accepted with warnings: {named}")
    print(f"accepted: all {checks} checks pass")


def print_warnings(run: FinishedRun) -> None:
    """Print the signs of silent failures in a run that has just ended; nothing without any."""
    answers, _ = _answers(run)
    evidence = Evidence(run.record, run.summary, answers)
    by_step: dict[tuple[Check, str], list[AcceptanceFinding]] = {}
    for finding in silent_failures(evidence):
        by_step.setdefault((finding.check, finding.next_step), []).append(finding)
    for (check, step), findings in by_step.items():
        say(f"warning: {check}: {'; '.join(_figures(findings))}; {step}", "yellow")


# Evidence


def _evidence(run: FinishedRun, data: Sequence[str], size: float | None) -> Evidence:
    """Collect the evidence about a run."""
    answers, unreadable = _answers(run)
    try:
        prepared: PreparedData | str = _read_prepared(_manifest_folder(run.record, data))
    except DataError as error:
        prepared = str(error)
    return Evidence(
        record=run.record,
        summary=run.summary,
        answers=answers,
        unreadable=unreadable,
        qa_records={log.file: _records(run, log.file) for log in run.record.qa_logs.values()},
        data=prepared,
        size=size,
    )


def _answers(run: FinishedRun) -> tuple[dict[str, AnswerCounts], list[str]]:
    """Count the answers by data set; also returns why samples could not be read."""
    counts: dict[str, AnswerCounts] = {}
    try:
        for verdict, generation in run.judged_samples():
            counts.setdefault(verdict.dataset, AnswerCounts()).add(verdict, generation)
    except OutputError as error:
        return counts, [str(error)]
    return counts, []


def _records(run: FinishedRun, file: str) -> int:
    """Count the records of a QA log that have a prompt and an answer."""
    count = 0
    with suppress(DataError):  # the records up to here count
        for _, record in read_json_lines(f"{run.folder.url.rstrip('/')}/{file}"):
            count += "prompt" in record and "response" in record
    return count


class _Overlap(BaseModel):
    model_config = ConfigDict(frozen=True)

    a: str
    b: str
    reviewed: str | None = None


def _manifest_folder(record: RunRecord, named: Sequence[str]) -> str:
    """Find the folder with the lock: beside the given data, or where the run had lock or data."""
    places = list(named or record.data_files or record.config.data.eval_files)
    if not named and record.data_lock and record.data_lock.path:
        places.insert(0, record.data_lock.path.rpartition("/")[0] or ".")
    for place in places:
        # The name of a file in a folder; only its manifests are looked for.
        file = place if place.endswith(".parquet") else f"{place.rstrip('/')}/set.parquet"
        if folder := manifest_folder(file):
            with reading(file):
                fs, _ = fsspec.core.url_to_fs(file)
                return folder if "://" not in file else str(fs.unstrip_protocol(folder))
    where = ", ".join(map(redact_address, places)) or "data files that the run does not name"
    raise DataError(f"no {LOCK_NAME} beside {where}")


def _read_prepared(folder: str) -> PreparedData:
    """Read the manifests that the lock lists, and the overlaps.

    Raises:
        DataError: The lock, or a file that it lists, cannot be used.
    """
    lock = load_lock(f"{folder}/{LOCK_NAME}")
    listed = [name for name in lock.files if not name.endswith(".parquet")]
    problems: dict[str, set[str]] = {}
    training: dict[str, None] = {}
    for name in listed:
        if f"{name.removesuffix('.jsonl')}.parquet" in lock.files:  # the manifest of a data file
            for line in _lines(f"{folder}/{name}", ManifestRow):
                problems.setdefault(line.dataset, set()).add(line.problem_id)
                if line.role is DataRole.TRAIN:
                    training[line.dataset] = None
    overlaps = list(_lines(f"{folder}/{_OVERLAPS}", _Overlap)) if _OVERLAPS in listed else []
    unreviewed = [
        f"{overlap.a} and {overlap.b}" for overlap in overlaps if overlap.reviewed is None
    ]
    with reading(folder):
        fs, path = fsspec.core.url_to_fs(f"{folder}/{_REPORT}")
        has_report = bool(fs.exists(path))
    return PreparedData(
        folder=redact_address(folder),
        problems={name: frozenset(ids) for name, ids in problems.items()},
        training=list(training),
        open_overlaps=unreviewed,
        reviewed_overlaps=len(overlaps) - len(unreviewed),
        has_report=has_report,
        differences=differences(lock, (f"{folder}/{name}" for name in listed)),
    )


LineT = TypeVar("LineT", bound=BaseModel)


def _lines(path: str, kind: type[LineT]) -> Iterator[LineT]:
    for number, fields in read_json_lines(path):
        try:
            yield kind.model_validate(fields)
        except ValidationError as error:
            cause = f"{describe(error)}; prepare the data again"
            raise data_error(f"{path}:{number}", cause) from None


# The table


def _print_report(run: FinishedRun, result: AcceptanceReport) -> None:
    """Print a table: a row per check and mark, with the figures of its data sets and next steps."""
    model = run.record.served_model
    named = f"{run.name}, model {model}" if model else run.name
    say(f"{run.folder.shown} ({named})")
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    silent = False
    for check in dict.fromkeys(finding.check for finding in result.findings):
        if not silent and check in SIGNS:
            silent = True
            table.add_row()
        for mark, style in reversed(_STYLES.items()):
            marked = [f for f in result.findings if f.check is check and f.mark is mark]
            steps = dict.fromkeys(f.next_step for f in marked if f.next_step)
            cell = shown(("\n" if steps else "; ").join(_figures(marked)))
            for step in steps:
                cell.append_text(shown(f"\n→ {step}", "dim"))
            if marked:
                table.add_row(Text(mark, style=style), check, cell)
    display(table)


def _figures(findings: Sequence[AcceptanceFinding]) -> list[str]:
    """The figures with their data sets; data sets with the same one share a text."""
    datasets: dict[str, list[str]] = {}
    for finding in findings:
        datasets.setdefault(finding.found, []).append(finding.dataset)
    return [
        f"{names}: {figure}" if (names := ", ".join(filter(None, sets))) else figure
        for figure, sets in datasets.items()
    ]
