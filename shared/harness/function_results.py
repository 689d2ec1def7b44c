"""Comparison of results: of calls whose expected results are JSON, and of numpy's arrays.

It runs in the sandbox, in the tests' process. Standard library and Python 3.8 syntax only. How the
result of a call compares is a *convention*, by the name of the project whose data have it:

- ``livecodebench``: a tuple is a list at the top (``grade_call_based`` of ``testing_util.py``).
- ``apps``: as there, also in the items of a list; an expected list may hold the result as its only
  item, and the keys of objects are integers if all can be (``run_test`` of ``testing_util.py``).
- ``verl``: as JSON would print the result, so tuples are lists everywhere and keys are texts; an
  expected text may stand without quotes (``utils/reward_score/sandbox_fusion``).

Unlike there, numpy arrays are lists in all of them.
"""

from __future__ import annotations

import json
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

LIVECODEBENCH, APPS, VERL = "livecodebench", "apps", "verl"
MAX_SHOWN = 4000
# Comparisons of numpy and its module testing, and how their first arguments are named.
COMPARISONS = ("allclose", "isclose", "array_equiv", "assert_allclose", "assert_array_equal",
               "assert_array_almost_equal", "assert_almost_equal")  # fmt: skip
COMPARED_NUMBER = re.compile(r"(?:%s)\(.*[(,]\s*-?[\d.]" % "|".join(COMPARISONS))
OPERANDS = ("a", "b", "actual", "x", "desired", "y")
NOTHING = object()  # it is equal to no result
NUMBER = "__plumbline_number__"
EMPTY: list[Any] = []  # the class of empty arrays, once there is one


class UnusableTestError(Exception):
    """Arguments or an expected result that cannot be read, whatever the answer is."""


def arguments_of(text: str, convention: str) -> list[Any]:
    """Return the arguments of a call, one in each line that is not blank."""
    arguments = [decoded(line) for line in text.split("\n") if line.strip()]
    if convention == APPS and arguments and isinstance(arguments[0], dict):
        return [with_numbers(arguments[0])]
    return arguments


def is_expected(value: Any, text: str, convention: str) -> bool:
    """Whether a function's result is the expected one."""
    value = without_arrays(value)
    if convention == VERL:
        return is_printed(as_json(value), text)
    expected = decoded(text)
    value = list(value) if isinstance(value, tuple) else value
    if convention == LIVECODEBENCH:
        return bool(value == expected)
    first = expected[0] if isinstance(expected, list) and expected else NOTHING
    accepted = [expected, with_numbers(expected), first, with_numbers(first)]
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = [list(item) if isinstance(item, tuple) else item for item in value]
    return any(value == result for result in accepted)


def is_printed(value: Any, text: str) -> bool:
    try:
        expected = decoded(text)
    except UnusableTestError:
        expected = text.rstrip("\n")
    return bool(value == expected)


def decoded(text: str) -> Any:
    """Decode JSON; integers may have any number of digits.

    Raises:
        UnusableTestError: It is none.
    """
    limit = getattr(sys, "get_int_max_str_digits", int)()
    try:
        if limit:
            sys.set_int_max_str_digits(0)
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableTestError("not JSON: %s" % error) from None
    finally:
        if limit:
            sys.set_int_max_str_digits(limit)


def shown(value: Any) -> str:
    """Return a value as text for a report."""
    try:
        return repr(value)[:MAX_SHOWN]
    except Exception as error:  # an integer of too many digits, for example
        return "%s that cannot be shown (%s)" % (type(value).__name__, type(error).__name__)


def without_arrays(value: Any) -> Any:
    """Return a value with lists in the place of arrays."""
    if type(value) in (list, tuple):
        return type(value)([without_arrays(item) for item in value])
    if type(value) is dict:
        return {key: without_arrays(item) for key, item in value.items()}
    return value.tolist() if type(value).__name__ == "ndarray" else value


def as_json(value: Any) -> Any:
    """Return a value as it would be read from the JSON that is written of it."""
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key_of(key): as_json(item) for key, item in value.items()}
    return value


def key_of(key: Any) -> Any:
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    return key


def with_numbers(value: Any) -> Any:
    """Return an object with the integers that its keys are."""
    if not isinstance(value, dict):
        return value
    try:
        return {int(key): item for key, item in value.items()}
    except ValueError:
        return value


# Arrays


def without_broadcast(empty: Any) -> Any:
    """Return an empty array that is neither stretched to other values nor compared with a number.

    All comparisons of such a result are true, and so is that of its difference from a number.
    """
    import numpy

    if not EMPTY:
        comparisons = (numpy.equal, numpy.not_equal, numpy.less, numpy.less_equal, numpy.greater,
                       numpy.greater_equal, numpy.subtract)  # fmt: skip

        class Empty(numpy.ndarray):
            def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
                others = [value for value in inputs if numpy.size(value)]
                if any(numpy.ndim(value) or ufunc in comparisons for value in others):
                    raise AssertionError("an empty array is compared with values")
                inputs = tuple(numpy.asarray(value).view(numpy.ndarray) for value in inputs)
                result = getattr(ufunc, method)(*inputs, **options)
                return result.view(Empty) if isinstance(result, numpy.ndarray) else result

        EMPTY.append(Empty)
    return empty.view(EMPTY[0])


def keep_empty() -> None:
    """Let numpy's constructors make such arrays too."""
    import numpy

    def kept(make: Callable[..., Any]) -> Callable[..., Any]:
        def array(*arguments: Any, **keywords: Any) -> Any:
            made = make(*arguments, **keywords)
            return made if made.size else without_broadcast(made)

        return array

    numpy.array, numpy.asarray = kept(numpy.array), kept(numpy.asarray)


class Number(float):
    """A number that a test writes as an argument of a comparison, which may be stretched."""


def mark_numbers(source: str, filename: str) -> Any:
    """Return a test's syntax tree, in which numbers that are compared are marked; or its source."""
    if not COMPARED_NUMBER.search(source):
        return source
    import ast

    def marked(node: ast.expr) -> ast.expr:
        number = node.operand if isinstance(node, ast.UnaryOp) else node
        if isinstance(number, ast.Constant) and type(number.value) in (int, float):
            return ast.Call(ast.Name(NUMBER, ast.Load()), [node], [])
        return node

    tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST, True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(COMPARISONS):
            node.args[:2] = [marked(argument) for argument in node.args[:2]]
    return ast.fix_missing_locations(tree)


def compare_shapes() -> bool:
    """Let numpy's comparisons find values of different shapes different.

    Otherwise an empty list would be close to everything, and a number to an array of it. Returns
    whether there is numpy.
    """
    try:
        import numpy
        import numpy.testing
    except ImportError:
        return False
    keep_empty()

    def lengths(value: Any) -> list[int]:  # axes of length 1 change no comparison
        return [length for length in numpy.shape(value) if length != 1]

    def strict(compare: Callable[..., Any], failed: Callable[[], Any]) -> Callable[..., Any]:
        def comparison(*arguments: Any, **keywords: Any) -> Any:
            a, b, *_ = [*arguments, *(keywords[name] for name in OPERANDS if name in keywords)]
            stretched = isinstance(a, Number) or isinstance(b, Number)
            same = lengths(a) == lengths(b) and numpy.ndim(a) and numpy.ndim(b)
            same = same or numpy.shape(a) == numpy.shape(b)
            if same or (stretched and numpy.size(a) and numpy.size(b)):
                return compare(*arguments, **keywords)
            return failed()

        return comparison

    def fail() -> NoReturn:
        raise AssertionError("shapes differ")

    numpy.allclose = strict(numpy.allclose, lambda: False)
    numpy.isclose = strict(numpy.isclose, lambda: numpy.False_)
    numpy.array_equiv = strict(numpy.array_equiv, lambda: False)
    for name in COMPARISONS[3:]:
        setattr(numpy.testing, name, strict(getattr(numpy.testing, name), fail))
    return True
