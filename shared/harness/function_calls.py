"""Calls of an answer's function by name: their arguments and expected results are JSON.

It runs in the sandbox, in the tests' process. Standard library and Python 3.8 syntax only. How a
result compares is a *convention*, by the name of the project whose data have it:

- ``livecodebench``: a tuple is a list at the top (``grade_call_based`` of ``testing_util.py``).
- ``apps``: as there, also in the items of a list; an expected list may hold the result as its only
  item, and the keys of objects are integers if all can be (``run_test`` of ``testing_util.py``).
- ``verl``: as JSON would print the result, so tuples are lists everywhere and keys are texts; an
  expected text may stand without quotes (``utils/reward_score/sandbox_fusion``).

Unlike there, numpy arrays are lists in all of them.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIVECODEBENCH, APPS, VERL = "livecodebench", "apps", "verl"
MAX_SHOWN = 4000


class UnusableTestError(Exception):
    """Arguments or an expected result that cannot be read, whatever the answer is."""


def arguments_of(text: str, convention: str) -> list[Any]:
    """Return the arguments of a call, one in each line that is not blank."""
    found = [decoded(line) for line in text.split("\n") if line.strip()]
    if convention == APPS and found and isinstance(found[0], dict):
        return [with_numbers(found[0])]
    return found


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
    wanted = [expected, with_numbers(expected), first, with_numbers(first)]
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = [list(item) if isinstance(item, tuple) else item for item in value]
    return any(value == one for one in wanted)


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


class Nothing:
    """It is equal to no result."""


NOTHING = Nothing()


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
