"""Protocol differences of two runs: only the model may differ, not data, prompts or judging."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.analysis.runs import ComparedRun

_SAMPLING = (
    *(
        f"actor_rollout_ref.rollout.{key}"
        for key in ("temperature", "top_p", "top_k", "n", "response_length")
    ),
    "generation.stop",
)
_LIMITS = ("sandbox.timeout", "sandbox.memory_limit_mb")
# Settings that a data set may override; method and checker are in the verdicts.
_JUDGING = (
    "language", "extraction", "verl_native", "confirm_timeouts", "max_timeouts", "cpu_grace",
    "wall_factor", "compile_timeout", "max_output_mb", "max_processes", "max_completion_chars",
)  # fmt: skip
_NOT_RECORDED = "not recorded"
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A setting that has to be equal and is not; values as messages show them."""

    what: str
    first: str
    second: str

    def describe(self, first: str, second: str) -> str:
        return f"{self.what} is {self.first} in {first} and {self.second} in {second}"


def protocol_mismatches(
    first: ComparedRun, second: ComparedRun, datasets: Sequence[str]
) -> list[Mismatch]:
    """All recorded settings that differ, except the model; a missing record differs, too."""
    ours = dict(_facts(first.run.run, datasets))
    theirs = dict(_facts(second.run.run, datasets))
    return [
        Mismatch(what, _shown(one), _shown(other))
        for what in dict.fromkeys([*ours, *theirs])
        if (one := ours.get(what, _NOT_RECORDED)) != (other := theirs.get(what, _NOT_RECORDED))
    ]


def _facts(run: Mapping[str, Any], datasets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    config = run.get("config")
    for path in (*_SAMPLING, *_LIMITS):
        yield path, _at(config, path)
    yield "the system prompt's SHA-256", _hash(_at(run, "system_prompt"))
    judge = _at(config, "judge")
    hashes = {one.get("dataset"): one.get("sha256") for one in run.get("datasets") or []}
    for dataset in datasets:
        yield f"the SHA-256 of {dataset}", hashes.get(dataset, _NOT_RECORDED)
        own = _mapping(_mapping(_at(judge, "datasets")).get(dataset))
        for key in _JUDGING:
            value = own.get(key)
            yield f"judge.{key} of {dataset}", _at(judge, key) if value is None else value
        yield from _prompts(_mapping(run.get("prompts")), dataset)


def _prompts(prompts: Mapping[str, Any], dataset: str) -> Iterator[tuple[str, Any]]:
    """A data set has one template, or one per kind of test: ``name (kind)``."""
    for name, prompt in prompts.items():
        if name == dataset or name.startswith(f"{dataset} ("):
            yield f"the prompt template's SHA-256 of {name}", _hash(prompt)


def _at(document: object, path: str) -> Any:  # noqa: ANN401 - whatever the file holds
    for key in path.split("."):
        if not isinstance(document, Mapping) or key not in document:
            return _NOT_RECORDED
        document = document[key]
    return document


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _hash(fact: object) -> object:
    return fact.get("sha256") if isinstance(fact, Mapping) else fact


def _shown(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
