"""`plumb data`: prepare and check data sets, and find them in a training corpus."""

import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from typer import Argument, Option

from services.cli.console import display, plain_table, say, shown, stdout_console
from services.cli.options import Overrides
from services.cli.verification import judge_solutions
from services.data import check as checks
from services.data.config import PrepareConfig, families_of
from services.data.contamination.check import ContaminationReport, check_contamination
from services.data.contamination.index import Part
from services.data.overlap import Overlap
from services.data.prepare import pipeline
from services.data.prepare.pipeline import describe_overlap
from services.data.records import (
    NO_PROBLEM,
    ProblemText,
    ReferenceSolution,
    read_records,
    replace_text,
    text_of,
)
from shared.config_files import load_document, validate_document
from shared.datasets import check_exists, parquet_files
from shared.errors import ConfigError, DataError, FindingsError, data_error
from shared.manifests import LOCK_NAME, DataRole, differences, load_lock
from shared.schemas import Verdict

DataConfigFile = Annotated[str | None, Option(help="YAML config, such as configs/data.yaml.")]
Allow = Annotated[str | None, Option(help="File of reviewed overlaps, each with a reason.")]
_SHOWN = 20
_LINE_EVERY = 5.0  # seconds
# In the working directory, as commands name them, or else in the checkout.
_PLACES = (Path("configs"), Path(__file__).resolve().parents[2] / "configs")
_CONFIGS = ("data.yaml", "data_stricter.yaml")


def prepare(
    overrides: Overrides = None,
    config: DataConfigFile = None,
    offline: Annotated[bool, Option("--offline", help="Never use the network.")] = False,
    allow: Allow = None,
    verify_solutions: Annotated[
        bool, Option("--verify-solutions", help="Also judge the reference solutions (embedded).")
    ] = False,
) -> None:
    """Fetch, standardize, check and write all data sets, with manifests and the audit report."""
    settings = _load(config, overrides or [], allow)
    flag = ["--verify-solutions"] if verify_solutions else []
    again = ["plumb", "data", "prepare", "--config", str(config), *flag, *(overrides or [])]

    def rejected(solutions: Sequence[ReferenceSolution]) -> list[Verdict]:
        runs = judge_solutions(solutions, Path(settings.raw) / "solutions", settings.verify)
        return [verdict for run in runs for verdict in run.verdicts() if not verdict.accepted]

    with DataProgress() as progress:
        prepared = pipeline.prepare(
            settings,
            progress,
            offline=offline,
            verifier=rejected if verify_solutions else None,
            commands=[
                shlex.join(again), f"plumb data check --config {shlex.quote(str(config))}"
            ],  # the audit names them
        )  # fmt: skip
    _print_audit(prepared)
    overlaps = prepared.audit.overlaps
    _print_overlaps(overlaps[:_SHOWN])
    if len(overlaps) > _SHOWN:
        say(f"… and {len(overlaps) - _SHOWN:,} more pairs")
    if overlaps:
        raise FindingsError(
            f"{len(overlaps)} pairs of problems of different sets overlap; see {prepared.report} "
            f"and {pipeline.OVERLAPS} next to it, then remove or review them (--allow FILE)"
        )


def check(
    files: Annotated[
        list[str] | None, Argument(help="Prepared files or folders (default: the config's).")
    ] = None,
    config: DataConfigFile = None,
    allow: Allow = None,
) -> None:
    """Check that prepared sets match lock and manifests, and do not overlap."""
    families: Mapping[str, str] = {}
    if files:
        allow = allow or (None if config is None else _load(config, (), None).allow)
        paths, manifests = _files(files), None
    else:
        settings = _load(config, (), allow)
        allow, manifests = settings.allow, settings.manifests
        paths = [f"{settings.output}/{name}.parquet" for name in settings.datasets]
        families = families_of(settings.datasets)
    checked = checks.check(paths, manifests, allow, families)
    for line in (*checked.differences, *checked.findings):
        say(line)
    _print_overlaps(checked.reviewed.open)
    for stale in checked.reviewed.stale:
        say(f"reviewed, but not found: {stale.a} and {stale.b}")
    say(
        f"{checked.problems:,} problems of {len(paths)} sets: {len(checked.differences)} "
        f"differences, {len(checked.reviewed.open)} overlaps, "
        f"{len(checked.reviewed.allowed)} reviewed",
    )
    if not checked.ok:
        raise FindingsError("the prepared sets have differences or open overlaps; see above")


def contamination(
    data: Annotated[list[str], Option(help="Prepared files or folders.")],
    against: Annotated[list[str], Option(help="Training corpus; repeatable.")],
    min_share: Annotated[float, Option(help="Share of a prompt's n-grams in one document.")] = 0.3,
    size: Annotated[int, Option("--ngram", help="Words per n-gram.")] = 13,
    processes: Annotated[int | None, Option(help="Worker processes; one per core.")] = None,
    output: Annotated[str | None, Option(help="JSON file for the full report.")] = None,
) -> None:
    """Find problems in a training corpus, which may be larger than memory."""
    if size < 2:
        raise ConfigError(f"--ngram {size}: must be at least 2")
    if not 0 <= min_share <= 1:
        raise ConfigError(f"--min-share {min_share:g}: must be between 0 and 1")
    problems: list[ProblemText] = []
    for file in _files(data):
        texts = [text_of(record) for record in read_records(file)]
        if not texts:
            raise data_error(file, NO_PROBLEM)
        problems += texts
    with DataProgress() as progress:
        report = check_contamination(
            problems,
            against,
            size=size,
            min_share=min_share,
            processes=max(1, processes or len(os.sched_getaffinity(0))),
            progress=progress.bytes_read,
        )
    _print_contamination(report)
    if output is not None:
        replace_text(output, json.dumps(report.document(), ensure_ascii=False, indent=2) + "\n")
    if contaminated := len(report.contaminated):
        raise FindingsError(
            f"{contaminated} of {len(problems)} problems are in the training corpus"
        )


def _load(config: str | None, overrides: Sequence[str], allow: str | None) -> PrepareConfig:
    if config is None:
        raise ConfigError("no data sets to prepare: add --config configs/data.yaml")
    settings = validate_document(PrepareConfig, load_document(config, overrides))
    return settings.model_copy(update={"allow": allow or settings.allow})


def _files(paths: Sequence[str]) -> list[str]:
    return [file for path in paths for file in parquet_files(path)]


# Public data sets by name


class KnownSet(NamedTuple):
    """A prepared data set: its parquet file, and the lock that covers it."""

    file: str
    lock: str

    def is_intact(self) -> bool:
        """Whether the file is there and is the one that was prepared."""
        try:
            check_exists(self.file)
            check_exists(self.lock)
        except DataError:
            return False
        return not differences(load_lock(self.lock), [self.file])


def known_sets(names: Sequence[str], config: str | None) -> list[KnownSet]:
    """Find data sets by name, and fetch and prepare the missing ones.

    A set that ``plumb data prepare`` wrote is used. Otherwise each set has its own folder in
    ``sets``, beside the output folder of its config.

    Args:
        names: Names in ``config``, or in ``configs/data.yaml`` and ``configs/data_stricter.yaml``.
        config: A file as for ``plumb data prepare``, in place of those two.

    Raises:
        ConfigError: The config cannot be used, or a name is unknown or is that of training data.
        DataError: A source cannot be used.
    """
    by_name: dict[str, PrepareConfig] = {}
    for file in [config] if config else map(_shipped, _CONFIGS):
        settings = _load(file, (), None)
        by_name = {**dict.fromkeys(settings.datasets, settings), **by_name}
    usable = {
        name: settings
        for name, settings in by_name.items()
        if settings.datasets[name].role is not DataRole.TRAIN
    }
    for name in names:
        if name not in usable:
            cause = "is training data" if name in by_name else "is not a known data set"
            raise ConfigError(
                f"--dataset {name} {cause}; choose from {', '.join(usable)}, or describe your own "
                "set in a file for --data-config"
            )
    return [_located(name, usable[name]) for name in dict.fromkeys(names)]


def _shipped(name: str) -> str:
    file = next((place / name for place in _PLACES if (place / name).is_file()), None)
    if file is None:
        raise ConfigError(f"no configs/{name} here; name a file of sets with --data-config")
    return str(file)


def _located(name: str, settings: PrepareConfig) -> KnownSet:
    parent = settings.output.rpartition("/")[0] or "."
    beside = f"{parent}/sets/{name}"
    manifests = f"{beside}/manifests"
    for folder, locks in ((settings.output, settings.manifests), (beside, manifests)):
        located = KnownSet(f"{folder}/{name}.parquet", f"{locks}/{LOCK_NAME}")
        if located.is_intact():
            return located
    moved = {"datasets": {name: settings.datasets[name]}, "output": beside, "manifests": manifests}
    with DataProgress() as progress:
        prepared = pipeline.prepare(settings.model_copy(update=moved), progress)
    _print_audit(prepared)
    return located


# Output


class DataProgress:
    """Progress of one step after the other: a live line in a terminal, and a line at its end.

    A file gets a line every five seconds. Other output may use the terminal between steps.
    """

    def __init__(self) -> None:
        self._console = stdout_console()
        self._status = self._console.status("")  # of no effect on a file
        self._step = ""
        self._count = 0
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._status.stop()

    def begin(self, step: str) -> None:
        self._step, self._count, self._shown_at = step, 0, time.monotonic()
        self._status.update(shown(step))
        self._status.start()

    def advance(self) -> None:
        self._count += 1
        self._show(f"{self._count:,}")

    def end(self, result: str) -> None:
        self._status.stop()
        say(f"{self._step}: {result}")

    def bytes_read(self, done: int, total: int) -> None:
        """Show the progress of reading a corpus, a separate step measured in bytes."""
        if not self._step:
            self.begin("reading the corpus")
        share = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        if done >= total:
            self.end(share)
        else:
            self._show(share)

    def _show(self, text: str) -> None:
        if self._console.is_terminal:
            self._status.update(shown(f"{self._step}: {text}"))
        elif time.monotonic() - self._shown_at > _LINE_EVERY:
            self._shown_at = time.monotonic()
            say(f"{self._step}: {text} …")


def _print_audit(prepared: pipeline.Prepared) -> None:
    """Print a row per data set, and the paths of report and lock."""
    headings = ("data set", "rows", "dropped", "duplicates", "problems", "tests at fault")
    table = plain_table(headings, ["data set"])
    for dataset in prepared.audit.datasets:
        at_fault = dataset.problems - dataset.quality.get("ok", 0)
        numbers = (dataset.rows, len(dataset.dropped), len(dataset.removed), dataset.problems)
        table.add_row(dataset.name, *(f"{number:,}" for number in (*numbers, at_fault)))
    display(table)
    for path in (prepared.report, prepared.lock):
        say(path)


def _print_overlaps(overlaps: Sequence[Overlap]) -> None:
    """Print pairs of problems with their similarities and excerpts."""
    for overlap in overlaps:
        pair = f"{overlap.a.name}  <->  {overlap.b.name}: {describe_overlap(overlap)}"
        say(pair, "red")
        excerpts = dict.fromkeys(filter(None, overlap.excerpts))
        for excerpt in excerpts:
            say(f"    {'both: ' if len(excerpts) == 1 else ''}{excerpt}")


def _print_contamination(report: ContaminationReport) -> None:
    """Print each problem found in the corpus, the worst first, with a row per part found."""
    hits = [problem for problem in report.problems if problem.documents]
    table = plain_table(["problem", "part", "share", "best document", "documents"])
    for problem in hits[:_SHOWN]:
        name, documents = f"{problem.dataset}/{problem.problem_id}", f"{problem.documents:,}"
        for part in problem.parts:
            if part.hit is None:
                continue
            style = "red" if part.contaminated else ""
            where = f"{part.hit.path}:{part.hit.row}"
            cells = (name, part.part, f"{part.share:.0%}", where, documents)
            table.add_row(*(shown(cell, style) for cell in cells))
            name = documents = ""
    if hits:
        display(table)
    if len(hits) > _SHOWN:
        say(f"{len(hits) - _SHOWN:,} more; --output FILE has them all")
    for path in report.skipped:
        say(f"skipped, not a corpus format: {path}", "yellow")
    unchecked = sum(len(problem.unchecked) for problem in report.problems)
    if unchecked:
        say(f"{unchecked:,} texts are missing or too short to check (--output FILE)")
    counts = ", ".join(f"{report.count(part):,} by {part}" for part in Part)
    contaminated = len(report.contaminated)
    say(
        f"{report.documents:,} documents of {report.files:,} files, {report.bytes / 1e6:,.1f} MB: "
        f"{contaminated:,} of {len(report.problems):,} problems contaminated ({counts}), "
        f"{len(hits):,} found",
    )
