"""`plumb data import` and `export`: public files as prepared data, and those as a trainer's files.

Apart from the other commands of the group, whose libraries take seconds to import.
"""

from collections.abc import Sequence
from typing import Annotated

from typer import Argument, Option

from services.cli.console import say
from services.cli.options import AllowUnlocked, ConfigFile, Overrides
from services.data.config import LayoutKind, parse_dates, parse_ids
from services.data.importer import import_dataset
from services.data.layouts.base import Options
from services.runner.preflight import load_problems
from services.training.verl_tables import (
    RECORD,
    ExportRecord,
    Layout,
    Purpose,
    TestsForm,
    check_disjoint,
    write_table,
)
from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.datasets import parquet_files
from shared.errors import ConfigError, DataError, OutputError
from shared.manifests import DataRole, dataset_roles
from shared.prompts import chat_messages, check_templates, prompt_facts
from shared.redaction import redact_address
from shared.schemas import Problem
from shared.verl_keys import notices

# Reference solutions kept per problem, for the check of contamination.
_SOLUTIONS = 3
_NOT_FOR_TRAINING = (
    "is evaluation data, and training on it would spoil every later measurement; prepare training "
    "data with role: train (plumb data import --role train), or accept it with --allow-eval"
)


def import_(
    kind: Annotated[LayoutKind, Argument(help="Layout of the source.")],
    source: Annotated[str, Option(help="Published file or folder.")],
    output: Annotated[str, Option(help="Folder, or a .parquet file.")],
    name: Annotated[str | None, Option(help="Name of the data set.")] = None,
    split: Annotated[str | None, Option(help="train, valid or test.")] = None,
    ids: Annotated[str | None, Option(help="MBPP: task ids, e.g. 11-210.")] = None,
    include_generated: Annotated[
        bool, Option("--include-generated", help="CodeContests: add the generated tests.")
    ] = False,
    since: Annotated[str | None, Option(help="LiveCodeBench: first day of a contest.")] = None,
    until: Annotated[str | None, Option(help="LiveCodeBench: last day, e.g. 2025-01-31.")] = None,
    role: Annotated[DataRole, Option(help="train: models may be trained on it.")] = DataRole.EVAL,
) -> None:
    """Read a public file into DATASET.parquet."""
    numbers = None if ids is None else parse_ids(ids)
    dates = parse_dates(since, until)
    options = Options(name, split, numbers, dates, include_generated, _SOLUTIONS)
    result = import_dataset(kind, source, output, options, role)
    say(f"{result.path}: {result.problems} problems of {result.dataset}")
    for row in result.dropped:
        say(f"{row.place}: dropped {row.problem_id}: {row.reason}")
    for line in result.findings:
        say(line)


def export(
    output: Annotated[str, Option(help="Folder for the files.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    train: Annotated[list[str] | None, Option(help="Prepared file or folder; repeatable.")] = None,
    validation: Annotated[list[str] | None, Option(help="The same for validation.")] = None,
    tests: Annotated[
        TestsForm, Option(help="The service has the tests, or the file has them.")
    ] = TestsForm.REFERENCE,
    agent_name: Annotated[str | None, Option(help="verl's agent loop, such as tool_agent.")] = None,
    force: Annotated[bool, Option("--force", help="Replace an earlier export.")] = False,
    allow_unlocked: AllowUnlocked = False,
    allow_eval: Annotated[
        bool, Option("--allow-eval", help="Accept evaluation data as training data.")
    ] = False,
) -> None:
    """Write prepared sets as a trainer's files, with the prompts of a run's config."""
    # Everything is read and checked before the first file is replaced.
    resolved = load_config(config, overrides or [])
    check_templates(resolved.data)
    named = {Purpose.TRAIN: train or [], Purpose.VALIDATION: validation or []}
    paths = {purpose: files for purpose, files in named.items() if files}
    if not paths:
        raise ConfigError("nothing to export: give --train PATH, --validation PATH, or both")
    folder = OutputFolder(output)
    _check_vacant(folder, force=force)
    problems: dict[Purpose, list[Problem]] = {}
    for purpose, files in paths.items():
        loaded = load_problems(resolved.data, files, allow_unlocked=allow_unlocked)
        problems[purpose] = loaded.problems
        for note in loaded.notes:
            print(note)
    for note in notices(resolved.run.verl_keys):
        print(note)
    if not allow_eval and Purpose.TRAIN in problems:
        _check_roles(paths[Purpose.TRAIN], problems[Purpose.TRAIN])
    check_disjoint(problems.get(Purpose.TRAIN, []), problems.get(Purpose.VALIDATION, []))
    layout = Layout(lambda problem: chat_messages(problem, resolved), tests, agent_name)
    # Without the record an interrupted export is not mistaken for a whole one.
    folder.remove([RECORD, *(p.file for p in Purpose if p not in problems)])
    written = {
        purpose.file: write_table(folder, purpose, rows, layout)
        for purpose, rows in problems.items()
    }
    facts = prompt_facts([problem for rows in problems.values() for problem in rows], resolved)
    record = ExportRecord(
        tests=tests,
        agent_name=agent_name,
        config=resolved.protocol().leaves,
        prompts=facts.prompts,
        system_prompt=facts.system_prompt,
        data_files={purpose: [*map(redact_address, paths[purpose])] for purpose in problems},
        files=written,
    )
    folder.write_json(RECORD, record.model_dump(mode="json"))
    for name, file in written.items():
        counts = ", ".join(
            f"{count:,} problems of {dataset}" for dataset, count in file.datasets.items()
        )
        print(f"{folder.shown.rstrip('/')}/{name}: {counts}")


def _check_roles(paths: Sequence[str], problems: Sequence[Problem]) -> None:
    """Refuse evaluation data as training data: that would be training on the test."""
    roles: dict[str, DataRole] = {}
    for file in (file for path in paths for file in parquet_files(path)):
        in_file = dataset_roles(file)
        if not in_file:
            raise DataError(f"{file}, which has no manifest, {_NOT_FOR_TRAINING}")
        roles |= {name: role for name, role in in_file.items() if roles.get(name) != DataRole.EVAL}
    for dataset in sorted({problem.dataset for problem in problems}):
        if roles.get(dataset, DataRole.EVAL) is DataRole.EVAL:
            raise DataError(f"{dataset} {_NOT_FOR_TRAINING}")


def _check_vacant(folder: OutputFolder, *, force: bool) -> None:
    names = [RECORD, *(purpose.file for purpose in Purpose)]
    present = [name for name in names if folder.exists(name)]
    if present and not force:
        raise OutputError(
            f"{folder.shown} holds an export ({', '.join(present)}), which a trainer may be "
            "reading; choose another folder, or replace it with --force"
        )
