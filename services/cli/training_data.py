"""`plumb data export`: prepared data as a trainer's training and validation files."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.runner.problems import load_problems
from services.training.export import RECORD, ExportRecord, Purpose, TestsForm
from services.training.verl_tables import Layout, check_disjoint, write_table
from shared.artifacts import OutputFolder
from shared.config import Config, load_config
from shared.data_roles import DataRole, dataset_roles
from shared.datasets import parquet_files
from shared.errors import ConfigError, DataError, OutputError
from shared.prompts import chat_messages, check_templates, prompt_facts
from shared.schemas import Problem
from shared.verl_translation import notices

_NOT_FOR_TRAINING = (
    "is evaluation data, and training on it would spoil every later measurement; prepare training "
    "data with role: train (plumb data import --role train), or accept it with --allow-eval"
)


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export: the baseline's config and its overrides, prepared files by purpose, choices.

    ``force`` replaces an earlier export. ``allow_unlocked`` accepts data that differs from the
    config's lock. ``allow_eval`` accepts training data whose role is evaluation.
    """

    config: str | None
    overrides: Sequence[str]
    paths: dict[Purpose, list[str]]
    output: str
    tests: TestsForm
    agent_name: str | None
    force: bool
    allow_unlocked: bool
    allow_eval: bool


def export_training_data(request: ExportRequest) -> None:
    """Write the files of a request, and ``export.json`` beside them; print their paths.

    Everything is read and checked before the first file is replaced.

    Raises:
        ConfigError: The config or an option cannot be used.
        DataError: A data file cannot be used, one problem is in both files, or training data is for
            evaluation.
        OutputError: The folder holds an export already, or cannot be written.
    """
    config = load_config(request.config, request.overrides)
    check_templates(config.data)
    paths = {purpose: given for purpose, given in request.paths.items() if given}
    if not paths:
        raise ConfigError("nothing to export: give --train PATH, --validation PATH, or both")
    folder = OutputFolder(request.output)
    _check_vacant(folder, force=request.force)
    problems: dict[Purpose, list[Problem]] = {}
    for purpose, given in paths.items():
        loaded = load_problems(config.data, given, allow_unlocked=request.allow_unlocked)
        problems[purpose] = loaded.problems
        for note in loaded.notes:
            print(note)
    for note in notices(config.run.verl_keys):
        print(note)
    if not request.allow_eval and Purpose.TRAIN in problems:
        _check_roles(paths[Purpose.TRAIN], problems[Purpose.TRAIN])
    check_disjoint(problems.get(Purpose.TRAIN, []), problems.get(Purpose.VALIDATION, []))
    _write(folder, request, config, problems)


def _check_roles(paths: Sequence[str], problems: Sequence[Problem]) -> None:
    """Refuse evaluation data as training data: that would be training on the test."""
    roles: dict[str, DataRole] = {}
    for file in (file for path in paths for file in parquet_files(path)):
        found = dataset_roles(file)
        if not found:
            raise DataError(f"{file}, which has no manifest, {_NOT_FOR_TRAINING}")
        roles |= {name: role for name, role in found.items() if roles.get(name) != DataRole.EVAL}
    for dataset in sorted({problem.dataset for problem in problems}):
        if roles.get(dataset, DataRole.EVAL) is DataRole.EVAL:
            raise DataError(f"{dataset} {_NOT_FOR_TRAINING}")


def _check_vacant(folder: OutputFolder, *, force: bool) -> None:
    found = [name for name in _names() if folder.exists(name)]
    if found and not force:
        raise OutputError(
            f"{folder.shown} holds an export ({', '.join(found)}), which a trainer may be reading; "
            "choose another folder, or replace it with --force"
        )


def _write(
    folder: OutputFolder,
    request: ExportRequest,
    config: Config,
    problems: dict[Purpose, list[Problem]],
) -> None:
    layout = Layout(
        messages=lambda problem: chat_messages(problem, config),
        tests=request.tests,
        agent_name=request.agent_name,
    )
    # Without the record an interrupted export is not mistaken for a whole one.
    folder.remove([RECORD, *(p.file for p in Purpose if p not in problems)])
    files = {
        purpose.file: write_table(folder, purpose, found, layout)
        for purpose, found in problems.items()
    }
    facts = prompt_facts([one for found in problems.values() for one in found], config)
    record = ExportRecord(
        tests=request.tests,
        agent_name=request.agent_name,
        config=config.protocol().leaves,
        prompts=facts.prompts,
        system_prompt=facts.system_prompt,
        data_files={purpose: request.paths[purpose] for purpose in problems},
        files=files,
    )
    folder.write_json(RECORD, record.model_dump(mode="json"))
    for name, file in files.items():
        counts = ", ".join(
            f"{count:,} problems of {dataset}" for dataset, count in file.datasets.items()
        )
        print(f"{folder.shown.rstrip('/')}/{name}: {counts}")


def _names() -> list[str]:
    return [RECORD, *(purpose.file for purpose in Purpose)]
