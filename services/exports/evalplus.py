"""EvalPlus export: ``task_id`` and ``solution`` of each sample as a JSON line.

EvalPlus supports only HumanEval and MBPP, with its own ids: ``HumanEval/0`` and ``Mbpp/11``. A
``solution`` is the program as it was judged: the code that Plumbline extracts, after the imports
and helpers of its prompt or setup. A bare function body becomes a ``completion``, which EvalPlus
appends to its prompt.
"""

import json
from collections.abc import Iterator
from urllib.parse import quote

from services.exports.samples import RunSamples, Sample
from shared.artifacts import OutputFolder
from shared.completions import evalplus_id
from shared.config import JudgeConfig
from shared.errors import DataError
from shared.extraction import extract, future_imports
from shared.statuses import ExtractionReason


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write ``<dataset>.jsonl`` for each data set that EvalPlus supports; yields the names.

    Raises:
        DataError: EvalPlus supports none of the run's data sets.
    """
    supported = {
        name: members
        for name, members in samples.datasets.items()
        if all(evalplus_id(member.generation.problem_id) for member in members)
    }
    others = ", ".join(name for name in samples.datasets if name not in supported)
    if not supported:
        cause = f"EvalPlus has only HumanEval and MBPP, not {others}; choose another format"
        raise DataError(f"{samples.run.folder.url}: {cause}")
    if others:
        samples.notes.append(f"skipped, because EvalPlus has no tests for them: {others}")
    for dataset, members in supported.items():
        name = f"{quote(dataset, safe='')}.jsonl"
        judge = samples.record.config.judge.for_dataset(dataset)
        with folder.replacing(name) as file:
            for member in members:
                file.write(json.dumps(_line(member, judge), ensure_ascii=False) + "\n")
        yield name


def _line(sample: Sample, judge: JudgeConfig) -> dict[str, str | None]:
    name = evalplus_id(sample.generation.problem_id)
    completion, problem = sample.generation.completion, sample.problem
    if code := sample.verdict.code:
        reason, source = code.reason, code.read(completion)
    else:  # an answer without a verdict; this is the program that would be judged
        extracted = extract(completion, language=judge.language, entry_point=problem.entry_point)
        reason, source = extracted.reason, extracted.code
    if reason is ExtractionReason.BODY_ONLY:
        return {"task_id": name, "completion": source}
    return {"task_id": name, "solution": _standalone(problem.prelude if source else "", source)}


def _standalone(prelude: str, code: str) -> str:
    """Join them, with ``__future__`` imports first, where Python wants them."""
    if not prelude.strip():
        return code
    futures, rest = future_imports(f"{prelude.rstrip()}\n\n\n{code}")
    return "\n".join([*futures, rest])
