"""What the commands of `plumb data` do.

Apart from their signatures, because comparing texts takes libraries whose import takes seconds,
which no other command should wait for.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.cli.data_display import DataProgress, print_audit, print_contamination, print_overlaps
from services.cli.display import stdout_console
from services.cli.verification import SolutionJudge
from services.data.check import check
from services.data.config import ChecksConfig, PrepareConfig
from services.data.contamination.check import check_contamination
from services.data.contamination.problems import EvalProblem
from services.data.lists import replace_text
from services.data.prepare.pipeline import OVERLAPS, prepare
from services.data.records import read_records
from shared.config_files import load_document, validate_document
from shared.datasets import parquet_files
from shared.errors import ConfigError, FindingsError

_SHOWN = 20


def prepare_sets(
    config: str | None,
    overrides: Sequence[str],
    *,
    offline: bool,
    allow: str | None,
    verify_solutions: bool,
) -> None:
    """Prepare the sets of a config file.

    Raises:
        ConfigError: The config cannot be used.
        DataError: A source cannot be used.
        FindingsError: Sets overlap.
    """
    settings = _load(config, overrides, allow)
    console = stdout_console()
    verifier = SolutionJudge(Path(settings.raw) / "solutions", settings.verify)
    with DataProgress(console) as progress:
        prepared = prepare(
            settings,
            progress,
            offline=offline,
            verifier=verifier if verify_solutions else None,
            commands=_commands(config, overrides, verify_solutions=verify_solutions),
        )
    print_audit(console, prepared)
    print_overlaps(console, prepared.audit.overlaps, _SHOWN)
    if prepared.audit.overlaps:
        raise FindingsError(
            f"{len(prepared.audit.overlaps)} pairs of problems of different sets overlap; see "
            f"{prepared.report} and {OVERLAPS} beside it, take them out or review them "
            "(--allow FILE)"
        )


def check_sets(files: Sequence[str], config: str | None, allow: str | None) -> None:
    """Check prepared files, or those of a config file with their manifests.

    Raises:
        ConfigError: The config cannot be used.
        DataError: A file cannot be read.
        FindingsError: They differ from what they should be, or overlap.
    """
    roles: Mapping[str, str] = {}
    if files:
        checks = ChecksConfig() if config is None else _load(config, (), None).checks
        checks = checks.model_copy(update={"allow": allow or checks.allow})
        paths, manifests = _files(files), None
    else:
        settings = _load(config, (), allow)
        checks, manifests = settings.checks, Path(settings.manifests)
        paths = [Path(settings.output) / f"{name}.parquet" for name in settings.datasets]
        roles = {name: dataset.role for name, dataset in settings.datasets.items()}
    checked = check(paths, manifests, checks, roles)
    for difference in checked.differences:
        print(difference)
    print_overlaps(stdout_console(), checked.reviewed.open)
    for stale in checked.reviewed.stale:
        print(f"reviewed, but no longer found: {stale.a} and {stale.b}")
    print(
        f"{checked.problems:,} problems of {len(paths)} sets: {len(checked.differences)} "
        f"differences, {len(checked.reviewed.open)} overlaps, "
        f"{len(checked.reviewed.allowed)} reviewed"
    )
    if not checked.ok:
        raise FindingsError("the prepared sets are not what they should be; see above")


def check_corpus(
    data: Sequence[str],
    against: Sequence[str],
    *,
    size: int,
    min_share: float,
    processes: int | None,
    output: Path | None,
) -> None:
    """Look for the problems of prepared files in a training corpus.

    Raises:
        DataError: A file cannot be read.
        FindingsError: Problems are in it.
    """
    problems = [
        EvalProblem(
            record.problem.dataset,
            record.problem.problem_id,
            record.problem.prompt,
            tuple(solution.code for solution in record.solutions),
        )
        for file in _files(data)
        for record in read_records(str(file))
    ]
    console = stdout_console()
    with DataProgress(console) as progress:
        report = check_contamination(
            problems,
            against,
            size=size,
            min_share=min_share,
            processes=processes or len(os.sched_getaffinity(0)),
            progress=progress.bytes_read,
        )
    if output is not None:
        replace_text(output, json.dumps(report.document(), ensure_ascii=False, indent=2) + "\n")
    print_contamination(console, report)
    found = sum(one.contaminated for one in report.problems)
    if found:
        raise FindingsError(f"{found} of {len(problems)} problems are in the training corpus")


def _load(config: str | None, overrides: Sequence[str], allow: str | None) -> PrepareConfig:
    if config is None:
        raise ConfigError("no sets to prepare: give --config configs/data.yaml")
    settings = validate_document(PrepareConfig, load_document(config, overrides))
    if allow is None:
        return settings
    checks = settings.checks.model_copy(update={"allow": allow})
    return settings.model_copy(update={"checks": checks})


def _files(paths: Sequence[str]) -> list[Path]:
    return [Path(file) for path in paths for file in parquet_files(path)]


def _commands(config: str | None, overrides: Sequence[str], *, verify_solutions: bool) -> list[str]:
    """What makes the same again."""
    given = ["plumb", "data", "prepare", "--config", str(config)]
    flag = ["--verify-solutions"] if verify_solutions else []
    again = shlex.join([*given, *flag, *(overrides)])
    return [again, f"plumb data check --config {shlex.quote(str(config))}"]
