"""Checks of a trainer's data files against a run and prepared data."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from services.training.mistakes import TOOLS
from services.training.trainer_config import Finding, Kind, TrainerConfig
from services.training.verl_tables import RECORD, Purpose, read_export
from shared.artifacts import OutputFolder
from shared.datasets import parquet_rows
from shared.manifests import hash_file
from shared.reference import ProblemReference, is_reference, problem_digest
from shared.run_record import RunRecord
from shared.schemas import Problem, sha256

_KEYS = {Purpose.TRAIN: "data.train_files", Purpose.VALIDATION: "data.val_files"}
_REQUIRED = ("data_source", "prompt", "reward_model", "extra_info")
_NAMED = 3


@dataclass
class _File:
    """What the rows of a data file say."""

    purpose: Purpose
    key: str
    path: str
    references: list[ProblemReference] = field(default_factory=list)
    inline: int = 0
    malformed: list[int] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    prompts: set[str] = field(default_factory=set)
    sources: Counter[str] = field(default_factory=Counter)

    def finding(self, kind: Kind, text: str, value: JsonValue = None) -> Finding:
        return Finding(kind, f"{self.key} {self.path}", value, None, text)


def check_files(
    trainer: TrainerConfig, run: RunRecord, problems: Iterable[Problem] = ()
) -> Iterator[Finding]:
    """Compare the prompts, problems and references of the data files.

    Args:
        trainer: Names the files, by paths that are valid here.
        run: Its prompts and data sets are compared.
        problems: The prepared problems, if they are at hand: references are compared with them.

    Raises:
        DataError: While iterating: a file cannot be read, or has no column of verl's.
        OutputError: The record beside a file cannot be read.
    """
    if trainer.get("data.prompt_key") not in (None, "prompt"):
        text = "plumb data export writes the prompt into the column prompt"
        yield Finding(Kind.MISTAKE, "data.prompt_key", trainer.get("data.prompt_key"), None, text)
    digests = {(p.dataset, p.problem_id): problem_digest(p) for p in problems}
    prompts: dict[Purpose, set[str]] = {purpose: set() for purpose in Purpose}
    validated: Counter[str] = Counter()
    for purpose, key in _KEYS.items():
        for path in filter(None, trainer.files(key)):
            file = _read(purpose, key, path)
            prompts[purpose] |= file.prompts
            yield from _rows(file)
            yield from _export(file, run)
            yield from _digests(file, digests)
            yield from _agents(file, trainer)
            if purpose is Purpose.TRAIN:
                yield from _trained_on_the_test(file, run)
            else:
                validated += file.sources
    yield from _datasets(validated, run)
    if both := len(prompts[Purpose.TRAIN] & prompts[Purpose.VALIDATION]):
        text = "prompts are in training and validation data; export again"
        yield Finding(Kind.MISTAKE, "data.val_files", both, None, text)


def _datasets(validated: Counter[str], run: RunRecord) -> Iterator[Finding]:
    """Compare the data sets of validation with those of the run."""
    measured: dict[str, int] = {dataset.dataset: dataset.problems for dataset in run.datasets}
    for name in dict.fromkeys((*validated, *measured)):
        ours, theirs = validated.get(name), measured.get(name)
        kind, text = Kind.DIFFERENCE, "another number of problems"
        if theirs is None:
            text = "the run has no figure for this data set"
        elif ours is None:
            kind, text = Kind.EXPECTED, "is not in the trainer's data"
        if ours != theirs:
            yield Finding(kind, f"validation of {name}", ours, theirs, text)


def _read(purpose: Purpose, key: str, path: str) -> _File:
    file = _File(purpose, key, path)
    for number, values in parquet_rows(path, _REQUIRED, ("agent_name",)):
        file.sources[str(values["data_source"])] += 1
        try:
            prompt = "\n".join(str(message.get("content")) for message in values["prompt"])
            truth = values["reward_model"]["ground_truth"]
            if is_reference(truth):
                file.references.append(ProblemReference.parse(truth))
            else:
                file.inline += 1
        except (AttributeError, KeyError, TypeError, ValueError):  # another shape than verl's
            file.malformed.append(number)
            continue
        file.prompts.add(sha256(prompt))
        if isinstance(agent := values.get("agent_name"), str) and agent:
            file.agents.add(agent)
    return file


def _rows(file: _File) -> Iterator[Finding]:
    if file.malformed:
        text = (
            f"row {file.malformed[0]} has no messages, or no ground truth that could be judged; "
            "export the data again"
        )
        yield file.finding(Kind.MISTAKE, text, len(file.malformed))
    if file.inline:
        text = (
            "rows have their tests inline: verl stores them with every rollout, and nothing checks "
            "that they are those of the prepared data"
        )
        yield file.finding(Kind.EXPECTED, text, file.inline)


def _export(file: _File, run: RunRecord) -> Iterator[Finding]:
    folder, _, name = file.path.rpartition("/")
    record = read_export(OutputFolder(folder or "."))
    if record is None or name not in record.files:
        text = f"no {RECORD} beside it, so its prompts cannot be compared; use plumb data export"
        yield file.finding(Kind.DIFFERENCE, text)
        return
    if hash_file(file.path).sha256 != record.files[name].sha256:
        text = f"is not the file that {RECORD} tells of; export again"
        yield file.finding(Kind.MISTAKE, text)
    other_prompt = "another prompt than the run's; export with the run's config"
    theirs = run.system_prompt.sha256 if run.system_prompt else None
    ours = record.system_prompt.sha256 if record.system_prompt else None
    if ours != theirs:
        subject = f"system prompt of {file.path}"
        yield Finding(Kind.DIFFERENCE, subject, ours, theirs, other_prompt)
    templates = run.prompts or {}
    hashes = {template.sha256 for template in templates.values()}
    for name, template in record.prompts.items():
        if name.partition(" (")[0] not in file.sources:
            continue
        measured, subject = templates.get(name), f"template of {name}"
        if measured and measured.sha256 != template.sha256:
            values = template.template, measured.template
            yield Finding(Kind.DIFFERENCE, subject, *values, other_prompt)
        elif not measured and template.sha256 not in hashes:
            text = "the run has no prompt of this form"
            yield Finding(Kind.EXPECTED, subject, template.template, None, text)


def _digests(file: _File, digests: Mapping[tuple[str, str], str]) -> Iterator[Finding]:
    if not digests:
        if file.references:
            text = "references were not compared with prepared data; give it with --data"
            yield file.finding(Kind.EXPECTED, text, len(file.references))
        return
    missing: list[str] = []
    changed: list[str] = []
    for reference in file.references:
        digest = digests.get((reference.dataset, reference.problem_id))
        if digest != reference.digest:
            (changed if digest else missing).append(f"{reference.dataset}/{reference.problem_id}")
    for text, names in (
        ("not in the prepared data, so the service refuses them", missing),
        ("the prepared data have changed since, so the service refuses; export again", changed),
    ):
        if names:
            some = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            yield file.finding(Kind.MISTAKE, f"{text}: {some}", len(names))


def _trained_on_the_test(file: _File, run: RunRecord) -> Iterator[Finding]:
    measured = {dataset.dataset for dataset in run.datasets}
    datasets = {*file.sources, *(reference.dataset for reference in file.references)}
    for name in sorted(datasets & measured):
        text = f"trains on {name}, which the run measured: its figure would mean nothing afterwards"
        yield file.finding(Kind.MISTAKE, text, name)


def _agents(file: _File, trainer: TrainerConfig) -> Iterator[Finding]:
    if "tool_agent" in file.agents and not any(map(trainer.get, TOOLS)):
        text = f"rows ask for tool_agent, but neither {' nor '.join(TOOLS)} names tools"
        yield file.finding(Kind.MISTAKE, text, "tool_agent")
