"""Layouts of data sets that test Python functions: HumanEval, MBPP and EvalPlus' editions of them.

HumanEval is read as openai/human-eval publishes it or as on the hub; MBPP of google-research/mbpp
in its full and its sanitized edition; HumanEval+ and MBPP+ as on the hub (evalplus/humanevalplus,
evalplus/mbppplus), whose ``test`` has all inputs and results. Source of those: EvalPlus 0.3.1,
``tools/*/to_original_fmt.py``.
"""

import re
from dataclasses import replace

from pydantic import AliasChoices, Field

from services.data.layouts.base import Draft, Layout, LayoutRow, Options
from shared.errors import data_error


class HumanEvalRow(LayoutRow):
    """``canonical_solution`` is a function body that continues the prompt."""

    task_id: str
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str | None = None


def _humaneval(_place: str, row: HumanEvalRow, _options: Options) -> Draft:
    body = row.canonical_solution
    return Draft(
        dataset="humaneval",
        problem_id=row.task_id,
        prompt=row.prompt,
        data_source="humaneval",
        ground_truth={"test": row.test, "entry_point": row.entry_point, "prompt": row.prompt},
        sandbox_dataset="humaneval_python",
        sandbox_id=row.task_id,
        solutions=[("python", body and row.prompt + body)],
    )


class MbppRow(LayoutRow):
    """The sanitized edition has ``prompt`` and ``test_imports`` for ``text`` and setup code."""

    task_id: int
    text: str = Field(validation_alias=AliasChoices("text", "prompt"))
    test_list: list[str]
    test_setup_code: str = ""
    test_imports: list[str] = Field(default_factory=list)
    code: str | None = None


REGRESSION_IDS = range(11, 211)
# The splits of the MBPP paper, by the first task_id after them.
_SPLITS = {1: "", 11: "prompt", 511: "test", 601: "validation", 975: "train"}


def _mbpp(_place: str, row: MbppRow, options: Options) -> Draft | None:
    """The data set is named ``mbpp_reg`` for ``ids`` 11-210, the regression set."""
    if options.ids is not None and row.task_id not in options.ids:
        return None
    # The tests are part of the prompt: only they name the function and its arguments.
    tests = "\n".join(row.test_list)
    setup = row.test_setup_code or "\n".join(row.test_imports)
    return Draft(
        dataset="mbpp_reg" if options.ids == REGRESSION_IDS else "mbpp",
        split=next((name for end, name in _SPLITS.items() if row.task_id < end), ""),
        problem_id=f"mbpp_{row.task_id}",
        prompt=f"{row.text}\n\nThe code has to pass these assertions:\n{tests}",
        data_source="mbpp",
        ground_truth={"test_list": row.test_list, "test_setup_code": setup},
        sandbox_dataset="mbpp",
        sandbox_id=str(row.task_id),
        # The full edition has carriage returns.
        solutions=[("python", row.code and row.code.replace("\r\n", "\n").replace("\r", "\n"))],
        statement=row.text,
    )


# EvalPlus

# Its tests on the hub assign their inputs; those of HumanEval and MBPP are single assertions.
_INPUTS = re.compile(r"^ *inputs = \[", re.MULTILINE)
# The test of HumanEval/32 on the hub (v0.1.10) mixes up the arguments: no answer passes it.
_SWAPPED, _UNSWAPPED = "_poly(*candidate(*inp), inp)", "abs(_poly(*inp, candidate(*inp)))"


class MbppPlusRow(MbppRow):
    """A row of MBPP with a complete ``test``."""

    test: str


def _plus_test(place: str, test: str, dataset: str) -> str:
    if not _INPUTS.search(test):
        cause = f"its test has no further inputs, as those of evalplus/{dataset} on the hub have"
        raise data_error(place, f"{cause}; import a base set with its own layout")
    return test.replace(_SWAPPED, _UNSWAPPED)


def _humaneval_plus(place: str, row: HumanEvalRow, options: Options) -> Draft:
    corrected = row.model_copy(update={"test": _plus_test(place, row.test, "humanevalplus")})
    base = _humaneval(place, corrected, options)
    assert isinstance(base.ground_truth, dict)
    truth = {**base.ground_truth, "limit_per_call": True}
    return replace(base, dataset="humaneval_plus", ground_truth=truth)


def _mbpp_plus(place: str, row: MbppPlusRow, options: Options) -> Draft:
    test = _plus_test(place, row.test, "mbppplus")
    setup = "\n".join(row.test_imports)
    truth = {"test_list": [test], "test_setup_code": setup, "limit_per_call": True}
    base = _mbpp(place, row, options)
    assert base is not None  # no ids are accepted
    return replace(base, dataset="mbpp_plus", split="test", ground_truth=truth)


_BODY, _CODE = {"canonical_solution": "solutions"}, {"code": "solutions"}
HUMANEVAL = Layout("HumanEval", HumanEvalRow, _humaneval, on_request=_BODY)
MBPP = Layout("MBPP", MbppRow, _mbpp, accepts="ids", on_request=_CODE)
HUMANEVAL_PLUS = Layout("HumanEval+", HumanEvalRow, _humaneval_plus, on_request=_BODY)
MBPP_PLUS = Layout("MBPP+", MbppPlusRow, _mbpp_plus, on_request=_CODE)
