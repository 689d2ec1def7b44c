"""Folders of finished runs, small enough to compute a comparison by hand."""

import copy
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shared.config import Config
from shared.config_files import validate_document
from shared.errors import ConfigError
from shared.outlines import ProblemOutline
from shared.run_record import VERSION
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import generation, verdict

S = FinalStatus
# A letter per sample: accepted, wrong (half of its cases passed), time-out, empty, no verdict.
STATUSES = {
    "+": S.SUCCESS, "-": S.WRONG_ANSWER, "t": S.TIMEOUT, "e": S.EMPTY_OUTPUT, "!": S.API_ERROR
}  # fmt: skip
_RATIOS = {"+": 1.0, "-": 0.5}


def write_run(
    folder: Path,
    answers: dict[str, str | Sequence[str]],
    *,
    summary: dict[str, Any] | None = None,
    change: dict[str, Any] | None = None,
    digests: dict[str, str] | None = None,
    **fields: Any,
) -> str:
    """Write a run and return its folder.

    Args:
        folder: Where to.
        answers: Per data set a letter per problem, or for several samples a text per problem.
        summary: Metrics of every data set.
        change: Dotted keys of run.json with other values.
        digests: Per data set a letter per problem, the digest of its content.
        fields: Other values in all verdicts.
    """
    folder.mkdir(parents=True)
    samples = [each for name, texts in answers.items() for each in _samples(name, texts)]
    verdicts = [_verdict(sample, letter, fields) for sample, letter in samples]
    (folder / "verdicts.jsonl").write_text("".join(f"{line}\n" for line in verdicts))
    (folder / "generations.jsonl").write_text("")
    outlines = [each for name, texts in (digests or {}).items() for each in _outlines(name, texts)]
    (folder / "problems.jsonl").write_text("".join(f"{outline}\n" for outline in outlines))
    document = _document(folder, answers, [letter for _, letter in samples])
    for path, value in (change or {}).items():
        _change(document, path.split("."), value)
    (folder / "run.json").write_text(json.dumps(as_recorded(document)))
    metrics = {name: summary or {} for name in answers}
    (folder / "phase0_summary.json").write_text(json.dumps(metrics))
    return str(folder)


def _samples(dataset: str, texts: str | Sequence[str]) -> Iterable[tuple[SampleId, str]]:
    for problem, text in enumerate(texts):
        for index, letter in enumerate(text):
            if letter != " ":
                yield SampleId(dataset, f"p{problem:03}", index), letter


def _outlines(dataset: str, digests: str) -> Iterable[str]:
    for problem, digest in enumerate(digests):
        yield ProblemOutline(
            dataset=dataset, problem_id=f"p{problem:03}", prompt="", digest=digest
        ).model_dump_json()


def _verdict(sample: SampleId, letter: str, fields: dict[str, Any]) -> str:
    ratio = _RATIOS.get(letter, 0.0)
    values = {"pass_ratio": ratio, "cases_passed": int(2 * ratio), "cases_total": 2, **fields}
    if letter == "e":
        values |= {"method": "guard", "checker": "none"}
    return verdict(generation(sample), STATUSES[letter], **values).model_dump_json()


def _document(
    folder: Path, answers: dict[str, str | Sequence[str]], letters: Sequence[str]
) -> dict[str, Any]:
    unjudged = letters.count("!")
    return {
        "run": f"{folder.name}-0123",
        "name": folder.name,
        "model": f"model-{folder.name}",
        "state": "incomplete" if unjudged else "complete",
        "complete": not unjudged,
        "samples_unjudged": unjudged,
        "config": copy.deepcopy(Config().model_dump(mode="json")),
        "prompts": {name: {"template": "{prompt}", "sha256": "aa"} for name in answers},
        "system_prompt": None,
        "datasets": [
            {
                "dataset": name,
                "sha256": f"hash-{name}",
                "problems": len(texts),
                "samples": sum(map(len, texts)),
            }
            for name, texts in answers.items()
        ],
    }


def as_recorded(document: dict[str, Any]) -> dict[str, Any]:
    """Add the version, and the protocol of the config if that is valid."""
    try:
        protocol = validate_document(Config, document["config"]).protocol().model_dump(mode="json")
    except (KeyError, ConfigError):
        protocol = None
    return {"version": VERSION, "protocol": protocol, **document}


def _change(document: Any, path: Sequence[str], value: object) -> None:
    *parents, last = path
    for key in parents:
        document = document[int(key) if key.isdigit() else key]
    document[last] = value
