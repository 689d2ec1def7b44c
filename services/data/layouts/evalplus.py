"""Layouts of EvalPlus: HumanEval+ and MBPP+, as published and as on the hub.

The published files (``HumanEvalPlus.jsonl``, ``MbppPlus.jsonl``) have inputs and a reference, whose
results are the expected ones: the test of a problem contains both. Their column ``test`` has
HumanEval's own tests. On the hub (evalplus/humanevalplus, evalplus/mbppplus) it has a complete test
instead, with inputs and results. The time limit of both is one per call. Source of the formats:
EvalPlus 0.3.1, ``evalplus/data`` and ``tools/*/to_original_fmt.py``.
"""

import ast
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

from pydantic import Field

from services.data.layouts.base import (
    Imported,
    Layout,
    LayoutRow,
    Options,
    make_problem,
    make_solutions,
    parse_row,
    refuse_dates,
    refuse_generated,
    refuse_ids,
)
from services.data.rows import Rows
from shared.errors import data_error

_COLUMNS = (
    *("task_id", "prompt", "entry_point", "canonical_solution", "base_input", "plus_input"),
    *("atol", "test", "test_list", "test_imports", "code"),
)
_CHECK = files(__package__).joinpath("plus_check.py")

_TEST = """\
def {check}(candidate):
    import copy

    inf, nan = float("inf"), float("nan")
    rules, reference = {{}}, {{}}
    exec({rules!a}, rules)
    exec({reference!a}, reference)
    for given in {inputs!a}:
        expected = reference[{name!a}](*copy.deepcopy(given))
        actual = candidate(*copy.deepcopy(given))
        assert rules["is_right"]({name!a}, given, actual, expected, {tolerance!a})
"""


# EvalPlus' tests on the hub assign their inputs; HumanEval's own are single assertions.
_HUB_INPUTS = re.compile(r"^ *inputs = \[", re.MULTILINE)
# The test of HumanEval/32 on the hub (v0.1.10) mixes up the arguments: no answer passes it.
_SWAPPED = "_poly(*candidate(*inp), inp)"
_UNSWAPPED = "abs(_poly(*inp, candidate(*inp)))"
# Inputs that a problem of HumanEval has at most, and those with drawn inputs.
_MOST_BASE, _MOST_DRAWN = 26, 105
_DRAWN = {f"HumanEval/{number}" for number in (32, 38, 50, 53)}


class _PlusRow(LayoutRow):
    """Fields that both sets have in the published files, and ``test``, which the hub has instead.

    ``plus_input`` is ``{}`` where there are no further inputs.
    """

    prompt: str
    base_input: list[list[Any]] | None = None
    plus_input: list[list[Any]] | dict[str, Any] | None = None
    atol: float | int = 0
    test: str | None = None

    @property
    def hub_test(self) -> str | None:
        """The complete test of a row of the hub."""
        if self.plus_input is not None or not self.test or not _HUB_INPUTS.search(self.test):
            return None
        return self.test.replace(_SWAPPED, _UNSWAPPED)

    @property
    def most_base(self) -> int:
        """Number of inputs that the base set has at most, for rows of the hub."""
        raise NotImplementedError

    @property
    def has_more(self) -> bool:
        """Whether its tests are more than those of the base set."""
        if self.hub_test is not None:
            return _hub_inputs(self.hub_test) > self.most_base
        base = self.base_input or []
        return any(one not in base for one in self.plus_input or ())


class _HumanEvalRow(_PlusRow):
    """``canonical_solution`` is a function body that continues the prompt."""

    task_id: str
    entry_point: str
    canonical_solution: str

    @property
    def most_base(self) -> int:
        return _MOST_DRAWN if self.task_id in _DRAWN else _MOST_BASE


class _MbppRow(_PlusRow):
    """``task_id`` is ``Mbpp/2``, on the hub 2, where ``code`` is the reference."""

    task_id: int | str
    entry_point: str | None = None
    canonical_solution: str | None = None
    code: str | None = None
    test_list: list[str] = Field(default_factory=list)
    test_imports: list[str] = Field(default_factory=list)

    @property
    def most_base(self) -> int:
        return len(self.test_list)


def _hub_inputs(test: str) -> int:
    """Number of inputs that a test of the hub has."""
    try:
        tree = ast.parse(test)
    except (SyntaxError, ValueError):
        return 0
    values = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
    }
    inputs = values.get("inputs")
    return len(inputs.elts) if isinstance(inputs, ast.List) else 0


def _columns(_options: Options) -> tuple[str, ...]:
    return _COLUMNS


def _read_humaneval(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read HumanEval+; accepts ``name``, ``split`` and ``solutions``."""
    _refuse_others("HumanEval+", options)
    more: bool | None = None
    for place, fields in rows:
        row = parse_row(_HumanEvalRow, place, fields)
        more = bool(more) or row.has_more
        solution = row.prompt + row.canonical_solution
        test = row.hub_test or _test(place, row, row.entry_point, solution, _inputs(place, row))
        truth = {"test": test, "entry_point": row.entry_point, "prompt": row.prompt}
        problem = make_problem(
            place,
            dataset=options.name or "humaneval_plus",
            split=options.split or "test",
            problem_id=row.task_id,
            prompt=row.prompt,
            data_source="humaneval",
            ground_truth={**truth, "limit_per_call": True},
            sandbox_dataset="humaneval_python",
            sandbox_id=row.task_id,
        )
        yield Imported(place, problem, make_solutions([("python", solution)], options.solutions))
    _require_more(more, "humaneval", options)


def _read_mbpp(rows: Rows, options: Options) -> Iterator[Imported]:
    """Read MBPP+; accepts ``name``, ``split`` and ``solutions``."""
    _refuse_others("MBPP+", options)
    more: bool | None = None
    for place, fields in rows:
        row = parse_row(_MbppRow, place, fields)
        more = bool(more) or row.has_more
        number = _number(place, row.task_id)
        solution = row.code or row.canonical_solution
        problem = make_problem(
            place,
            dataset=options.name or "mbpp_plus",
            split=options.split or "test",
            problem_id=f"mbpp_{number}",
            prompt=_mbpp_prompt(row),
            data_source="mbpp",
            ground_truth=_mbpp_truth(place, row, number, solution),
            sandbox_dataset="mbpp",
            sandbox_id=str(number),
        )
        solutions = make_solutions([("python", solution)], options.solutions)
        yield Imported(place, problem, solutions, row.prompt.strip().strip('"').strip())
    _require_more(more, "mbpp", options)


def _require_more(more: bool | None, base: str, options: Options) -> None:
    if more is False:
        cause = f"its tests are no more than those of {base}: no row has further inputs"
        raise data_error(options.source or base, f"{cause}; import it with the layout {base}")


def _refuse_others(kind: str, options: Options) -> None:
    refuse_ids(kind, options)
    refuse_generated(kind, options)
    refuse_dates(kind, options)


def _test(
    place: str, row: _PlusRow, name: str, reference: str, inputs: list[Any], check: str = "check"
) -> str:
    try:
        return _TEST.format(
            check=check,
            rules=_CHECK.read_text(encoding="utf-8"),
            reference=reference,
            inputs=inputs,
            name=name,
            tolerance=row.atol,
        )
    except ValueError as error:  # a number of thousands of digits has no text
        raise data_error(place, f"its inputs cannot be written ({error}); fix the row") from None


def _inputs(place: str, row: _PlusRow) -> list[Any]:
    """Return the arguments of all calls; EvalPlus writes ``{}`` for no further inputs."""
    if row.base_input is None or row.plus_input is None:
        cause = "neither base_input and plus_input nor a test with EvalPlus' inputs"
        raise data_error(place, f"{cause}; if it is of the base set, import it with that layout")
    return [*row.base_input, *row.plus_input]


def _number(place: str, task_id: int | str) -> int:
    text = str(task_id).removeprefix("Mbpp/")
    if not text.isdecimal():
        raise data_error(place, f"task_id {task_id!r} has no number; check that the set is MBPP+")
    return int(text)


def _mbpp_prompt(row: _MbppRow) -> str:
    """Build the prompt with the tests that MBPP shows, since only they name the function."""
    if row.hub_test is None:
        return row.prompt.strip().strip('"').strip()
    tests = "\n".join(row.test_list)
    return f"{row.prompt}\n\nThe code has to pass these assertions:\n{tests}"


def _mbpp_truth(place: str, row: _MbppRow, number: int, solution: str | None) -> dict[str, Any]:
    if row.hub_test is not None:
        setup = "\n".join(row.test_imports)
        return {"test_list": [row.hub_test], "test_setup_code": setup, "limit_per_call": True}
    if row.entry_point is None or solution is None:
        cause = "no entry_point or canonical_solution"
        raise data_error(place, f"{cause}; check that the file has this layout")
    try:
        inputs = [_as_python(number, given) for given in _inputs(place, row)]
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise data_error(place, f"an input of Mbpp/{number} has another form: {error}") from None
    check = f"check_{row.entry_point}"  # one of the tasks asks for a function named ``check``
    test = _test(place, row, row.entry_point, solution, inputs, check)
    tests = [f"{test}\n{check}({row.entry_point})"]
    return {"test_list": tests, "test_setup_code": "", "limit_per_call": True}


# JSON has no tuples, sets and complex numbers, which the arguments of these tasks contain: the
# task numbers are those of EvalPlus' ``mbpp_deserialize_inputs``.


def _each(given: list[Any]) -> list[Any]:
    return [tuple(argument) for argument in given]


def _inner(given: list[Any]) -> list[Any]:
    return [[tuple(item) for item in argument] for argument in given]


def _both(given: list[Any]) -> list[Any]:
    return _each(_inner(given))


def _first_of_two(given: list[Any]) -> list[Any]:
    return [tuple(given[0]), *given[1:]]


def _as_set(item: Any) -> object:  # noqa: ANN401
    return set(item) if isinstance(item, list) and item else {}


def _deep(value: Any) -> Any:  # noqa: ANN401
    return tuple(map(_deep, value)) if isinstance(value, list) else value


_FORMS: tuple[tuple[Callable[[list[Any]], Any], tuple[int, ...]], ...] = (
    (_each, (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616)),
    (_each, (630, 726, 740, 744, 809)),
    (_inner, (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780)),
    (lambda given: [[tuple(item) for item in given[0]], given[1]], (75, 413, 444, 753)),
    (lambda given: [given[0], tuple(given[1])], (106, 750)),
    (lambda given: [[_as_set(item) for item in given[0]]], (115,)),
    (lambda given: [float(given[0]), complex(given[1])], (124,)),
    (lambda given: [complex(given[0])], (252,)),
    (_first_of_two, (250, 307, 405, 446, 617, 720, 763, 808)),
    (_both, (259, 401, 445)),
    (
        lambda given: [tuple(tuple(x) if isinstance(x, list) else x for x in given[0])],
        (278,),
    ),
    (lambda given: [{key: tuple(x) for key, x in given[0].items()}, *given[1:]], (722,)),
    (_deep, (580, 615, 791)),
)
_FORM_OF = {number: form for form, numbers in _FORMS for number in numbers}


def _as_python(number: int, given: list[Any]) -> Any:  # noqa: ANN401
    """Restore the types of a call's arguments."""
    return _FORM_OF[number](given) if number in _FORM_OF else given


HUMANEVAL_PLUS = Layout(_columns, _read_humaneval)
MBPP_PLUS = Layout(_columns, _read_mbpp)
