"""EvalPlus export: ``task_id`` and ``solution`` of each sample as a JSON line.

EvalPlus supports only HumanEval and MBPP, with its own ids: ``HumanEval/0`` and ``Mbpp/11``. The
code is extracted by Plumbline; a bare function body becomes a ``completion``, which EvalPlus
appends to its prompt.
"""

import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from services.exports.samples import RunSamples, Sample
from shared.artifacts import OutputFolder
from shared.config import JudgeConfig
from shared.errors import DataError
from shared.extraction import extract
from shared.statuses import ExtractionReason

_MBPP = re.compile(r"mbpp[_/](\d+)", re.IGNORECASE | re.ASCII)


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write ``<dataset>.jsonl`` for each data set that EvalPlus supports; yields the names.

    Raises:
        DataError: EvalPlus supports none of the run's data sets.
    """
    known = {name: members for name, members in samples.datasets.items() if _known(members)}
    others = ", ".join(name for name in samples.datasets if name not in known)
    if not known:
        cause = f"EvalPlus has only HumanEval and MBPP, not {others}; choose another format"
        raise DataError(f"{samples.run.folder.url}: {cause}")
    if others:
        samples.notes.append(f"skipped, because EvalPlus has no tests for them: {others}")
    for dataset, members in known.items():
        name = f"{quote(dataset, safe='')}.jsonl"
        judge = samples.record.config.judge.for_dataset(dataset)
        with folder.replacing(name) as file:
            for member in members:
                file.write(json.dumps(_line(member, judge), ensure_ascii=False) + "\n")
        yield name


def task_id(problem_id: str) -> str | None:
    """Return EvalPlus's id of a problem; None if EvalPlus does not have it."""
    if problem_id.startswith("HumanEval/"):
        return problem_id
    match = _MBPP.fullmatch(problem_id)
    return f"Mbpp/{int(match[1])}" if match else None


def _known(members: Sequence[Sample]) -> bool:
    return all(task_id(member.generation.problem_id) for member in members)


def _line(sample: Sample, judge: JudgeConfig) -> dict[str, str | None]:
    found = extract(
        sample.generation.completion,
        language=judge.language,
        entry_point=sample.question.entry_point if sample.question else None,
        policy=judge.extraction,
    )
    kind = "completion" if found.reason is ExtractionReason.BODY_ONLY else "solution"
    return {"task_id": task_id(sample.generation.problem_id), kind: found.code}
