"""Layouts of HumanEval, MBPP, EvalPlus' editions of them, MultiPL-E, and our own layout.

HumanEval is read as openai/human-eval publishes it or as on the hub; MBPP of google-research/mbpp
in its full and its sanitized edition; HumanEval+ and MBPP+ as on the hub (evalplus/humanevalplus,
evalplus/mbppplus), whose ``test`` has all inputs and results. Source of those: EvalPlus 0.3.1,
``tools/*/to_original_fmt.py``.
"""

import json
import re
from dataclasses import replace
from typing import ClassVar

from pydantic import AliasChoices, Field

from services.data.layouts.base import Draft, LayoutRow, Options
from shared.errors import data_error
from shared.harness.languages import LANGUAGES


class HumanEvalRow(LayoutRow):
    """``canonical_solution`` is a function body that continues the prompt."""

    set_name = "HumanEval"
    on_request: ClassVar = {"canonical_solution": "solutions"}

    task_id: str
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str | None = None

    def draft(self, place: str, options: Options) -> Draft:
        body = self.canonical_solution
        return Draft(
            dataset="humaneval",
            problem_id=self.task_id,
            prompt=self.prompt,
            data_source="humaneval",
            ground_truth={
                "test": self.test,
                "entry_point": self.entry_point,
                "prompt": self.prompt,
            },
            sandbox_dataset="humaneval_python",
            solutions=[("python", body and self.prompt + body)],
        )


REGRESSION_IDS = range(11, 211)
# The splits of the MBPP paper, by the first task_id after them.
_SPLITS = {1: "", 11: "prompt", 511: "test", 601: "validation", 975: "train"}


class MbppRow(LayoutRow):
    """The sanitized edition has ``prompt`` and ``test_imports`` for ``text`` and setup code.

    The data set is named ``mbpp_reg`` for ``ids`` 11-210, the regression set.
    """

    set_name = "MBPP"
    accepts = "ids"
    on_request: ClassVar = {"code": "solutions"}

    task_id: int
    text: str = Field(validation_alias=AliasChoices("text", "prompt"))
    test_list: list[str]
    test_setup_code: str = ""
    test_imports: list[str] = Field(default_factory=list)
    code: str | None = None

    def draft(self, place: str, options: Options) -> Draft | None:
        if options.ids is not None and self.task_id not in options.ids:
            return None
        # The tests are part of the prompt: only they name the function and its arguments.
        tests = "\n".join(self.test_list)
        setup = self.test_setup_code or "\n".join(self.test_imports)
        # The full edition has carriage returns.
        code = self.code and self.code.replace("\r\n", "\n").replace("\r", "\n")
        return Draft(
            dataset="mbpp_reg" if options.ids == REGRESSION_IDS else "mbpp",
            split=next((name for end, name in _SPLITS.items() if self.task_id < end), ""),
            problem_id=f"mbpp_{self.task_id}",
            prompt=f"{self.text}\n\nThe code has to pass these assertions:\n{tests}",
            data_source="mbpp",
            ground_truth={"test_list": self.test_list, "test_setup_code": setup},
            sandbox_dataset="mbpp",
            sandbox_id=str(self.task_id),
            solutions=[("python", code)],
            statement=self.text,
        )


# EvalPlus

# Its tests on the hub assign their inputs; those of HumanEval and MBPP are single assertions.
_INPUTS = re.compile(r"^ *inputs = \[", re.MULTILINE)
# The test of HumanEval/32 on the hub (v0.1.10) mixes up the arguments: no answer passes it.
_SWAPPED, _UNSWAPPED = "_poly(*candidate(*inp), inp)", "abs(_poly(*inp, candidate(*inp)))"


def _plus_test(place: str, test: str, dataset: str) -> str:
    if not _INPUTS.search(test):
        cause = f"its test has no further inputs, as those of evalplus/{dataset} on the hub have"
        raise data_error(place, f"{cause}; import a base set with its own layout")
    return test.replace(_SWAPPED, _UNSWAPPED)


class HumanEvalPlusRow(HumanEvalRow):
    """A row of HumanEval with a complete ``test``."""

    set_name = "HumanEval+"

    def draft(self, place: str, options: Options) -> Draft:
        test = _plus_test(place, self.test, "humanevalplus")
        base = self.model_copy(update={"test": test})
        draft = HumanEvalRow.draft(base, place, options)
        assert isinstance(draft.ground_truth, dict)
        truth = {**draft.ground_truth, "limit_per_call": True}
        return replace(draft, dataset="humaneval_plus", ground_truth=truth)


class MbppPlusRow(MbppRow):
    """A row of MBPP with a complete ``test``."""

    set_name = "MBPP+"
    accepts = ""

    test: str

    def draft(self, place: str, options: Options) -> Draft:
        test = _plus_test(place, self.test, "mbppplus")
        setup = "\n".join(self.test_imports)
        truth = {"test_list": [test], "test_setup_code": setup, "limit_per_call": True}
        base = super().draft(place, options)
        assert base is not None  # no ids are accepted
        return replace(base, dataset="mbpp_plus", split="test", ground_truth=truth)


# MultiPL-E

# It names a language by the ending of its files, and SandboxFusion otherwise.
TRANSLATED = {name: kind.name for kind in LANGUAGES.values() for name in kind.multipl_e}


class MultiplERow(LayoutRow):
    """One language of HumanEval or MBPP (nuprl/MultiPL-E, ``dataset_builder``).

    The prompt ends within a function; the tests may begin with the brace that closes it.
    """

    set_name = "MultiPL-E"

    name: str
    language: str
    prompt: str
    tests: str
    stop_tokens: list[str] = Field(default_factory=list)

    def draft(self, place: str, options: Options) -> Draft:
        if self.language not in TRANSLATED:
            cause = f"language {self.language!r} cannot be judged"
            raise data_error(place, f"{cause}; choose a set in one of {', '.join(TRANSLATED)}")
        # "HumanEval_0_has_close_elements", "mbpp_3_is_not_prime"
        source = self.name.partition("_")[0].lower()
        return Draft(
            dataset=f"{source}_{self.language.partition('_')[0]}",
            problem_id=self.name,
            prompt=self.prompt,
            data_source="multipl_e",
            ground_truth={
                "language": TRANSLATED[self.language],
                "prompt": self.prompt,
                "program_tests": self.tests,
                "stop_tokens": self.stop_tokens,
            },
            sandbox_dataset="multiple",
        )


# Our own layout


class ProblemRow(LayoutRow):
    """The fields of ``Problem``; ``ground_truth`` and ``extra_info`` are objects or their JSON.

    ``prompt_sha256`` is computed on import.
    """

    set_name = "the jsonl layout"
    on_request: ClassVar = {"reference_solution": "solutions"}

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

    def draft(self, place: str, options: Options) -> Draft:
        for name, option in (("dataset", options.name), ("split", options.split)):
            if not getattr(self, name) and not option:
                cause = f"{name}: field required; check that the file has this layout"
                raise data_error(place, cause)
        info = self.extra_info
        return Draft(
            **self.model_dump(exclude={"extra_info", "reference_solution"}),
            info=info if isinstance(info, str) else json.dumps(info, ensure_ascii=False),
            solutions=[("python", self.reference_solution)],
        )
