"""Plumbline's own layout, and that of MultiPL-E."""

import json

from pydantic import Field

from services.data.layouts.base import Draft, Layout, LayoutRow, Options
from shared.errors import data_error
from shared.harness.languages import LANGUAGES


class ProblemRow(LayoutRow):
    """The fields of ``Problem``; ``ground_truth`` and ``extra_info`` are objects or their JSON.

    ``prompt_sha256`` is computed on import.
    """

    dataset: str = ""
    split: str = ""
    problem_id: str
    prompt: str
    data_source: str
    ground_truth: dict[str, object] | str
    difficulty: str
    sandbox_dataset: str
    sandbox_id: str
    extra_info: dict[str, object] | str = ""
    reference_solution: str | None = None


def _jsonl(place: str, row: ProblemRow, options: Options) -> Draft:
    for name in ("dataset", "split"):
        if not getattr(row, name) and not getattr(options, name.replace("dataset", "name")):
            raise data_error(place, f"{name}: field required; check that the file has this layout")
    info = row.extra_info
    fields = row.model_dump(exclude={"extra_info", "reference_solution"})
    return Draft(
        **fields,
        info=info if isinstance(info, str) else json.dumps(info, ensure_ascii=False),
        solutions=[("python", row.reference_solution)],
    )


JSONL = Layout(
    "the jsonl layout", ProblemRow, _jsonl, on_request={"reference_solution": "solutions"}
)

# MultiPL-E names a language by the ending of its files, and SandboxFusion otherwise.
TRANSLATED = {name: kind.name for kind in LANGUAGES.values() for name in kind.multipl_e}


class MultiplERow(LayoutRow):
    """One language of HumanEval or MBPP (nuprl/MultiPL-E, ``dataset_builder``).

    The prompt ends within a function; the tests may begin with the brace that closes it.
    """

    name: str
    language: str
    prompt: str
    tests: str
    stop_tokens: list[str] = Field(default_factory=list)


def _multipl_e(place: str, row: MultiplERow, _options: Options) -> Draft:
    if row.language not in TRANSLATED:
        cause = f"language {row.language!r} cannot be judged"
        raise data_error(place, f"{cause}; choose a set in one of {', '.join(TRANSLATED)}")
    # "HumanEval_0_has_close_elements", "mbpp_3_is_not_prime"
    source = row.name.partition("_")[0].lower()
    return Draft(
        dataset=f"{source}_{row.language.partition('_')[0]}",
        problem_id=row.name,
        prompt=row.prompt,
        data_source="multipl_e",
        ground_truth={
            "language": TRANSLATED[row.language],
            "prompt": row.prompt,
            "program_tests": row.tests,
            "stop_tokens": row.stop_tokens,
        },
        sandbox_dataset="multiple",
        sandbox_id=row.name,
    )


MULTIPL_E = Layout("MultiPL-E", MultiplERow, _multipl_e)
