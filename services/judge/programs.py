"""Programs that run an answer: function tests, verl's calls, preambles of conventions.

Includes the classification of a program's exit.
"""

import json
import re
import signal
from collections.abc import Sequence
from string import Template

from services.judge.requests import source
from shared.extraction import Extraction, future_imports
from shared.function_plan import with_prompt
from shared.harness.languages import LANGUAGES
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, Convention, VerdictDetail

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

# What programs that get no memory print; a runtime prints more after it.
_REFUSED = [sign for language in LANGUAGES.values() for sign in language.refused]

# The imports and recursion limit that LiveCodeBench, verl and APPS give an answer. Sources:
# ``prime_code/utils.py`` and ``sandbox_fusion/utils.py`` of verl 0.9.1, ``import_string`` of
# ``lcb_runner/evaluation/testing_util.py`` of LiveCodeBench, ``run_test`` of
# ``eval/testing_util.py`` of APPS. How results compare is in ``shared.harness.function_calls``.

# Modules that verl and LiveCodeBench import for the answer, in their order.
_STAR = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
    *("builtins", "typing"),
)
IMPORTS = "".join(
    [f"from {module} import *\n" for module in _STAR]
    + [f"import {module}\n" for module in _STAR[:-2]]
)
_APPS = """\
import sys, time, itertools, collections, math, fractions, random, heapq
from itertools import accumulate, product, permutations, combinations
from collections import Counter, OrderedDict, deque, defaultdict, ChainMap
from functools import lru_cache
from math import sqrt, sin, cos, tan, ceil, fabs, floor, gcd, exp, log, log2
from typing import List, Tuple
from heapq import *
"""

_PREAMBLES = {
    Convention.VERL: IMPORTS,
    Convention.LIVECODEBENCH: f"{IMPORTS}sys.setrecursionlimit(50000)\n",
    Convention.APPS: _APPS,
}

_PROGRAM = Template(
    """\
import traceback
$imports

$answer

def _plumbline_call():
    lines = sys.stdin.read()
    try:
        arguments = [json.loads(line) for line in lines.split("\\n")] if lines.strip() else []
    except json.JSONDecodeError as error:
        sys.stderr.write(f"arguments are not JSON: {error}\\n")
        return
    try:
        function = None
        if $name in globals():
            function = globals()[$name]
        elif "Solution" in globals():
            function = getattr(globals()["Solution"](), $name)
        if not function:
            sys.stderr.write("no function or method " + $name + "\\n")
            return
        result = function(*arguments)
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return
    as_json = isinstance(result, (dict, list, tuple, bool)) or result is None
    print(json.dumps(result) if as_json else str(result))

if __name__ == "__main__":
    _plumbline_call()
"""
)


def humaneval_program(answer: Extraction, tests: HumanEvalTests) -> str:
    """Build the program that runs ``check(entry_point)``, which is one case.

    The program begins with the part of the prompt before the entry point (imports, helper
    functions), or with the whole prompt if the answer is only the body of the function. The answer
    may redefine anything; the test's ``check`` replaces a ``check`` of the answer. ``__future__``
    imports of the prompt hold for the answer too.
    """
    code, prelude = with_prompt(answer, tests)
    # Some tests draw random inputs; a fixed seed makes the verdict deterministic.
    seed = "import random; random.seed(0)\n" if "random" in tests.test else ""
    return _program(prelude, code, [f"{seed}{tests.test}\ncheck({tests.entry_point})\n"])


def mbpp_program(answer: Extraction, tests: MbppTests) -> str:
    """Build the program that runs the statements of ``test_list`` in order, one case each.

    The setup code runs before the answer, or after it if it uses names that the answer defines.
    """
    return _program(tests.test_setup_code, answer.code, tests.test_list)


def wrap_call(answer: str, fn_name: str) -> str:
    """Wrap an answer as verl 0.9.1 does for ``fn_name``: one JSON argument per line of input.

    The result is printed as JSON if it is a container, a bool or ``None``, otherwise as text. An
    exception in the function prints no result and ends with exit code 0, which is a wrong answer.
    """
    return _PROGRAM.substitute(imports=IMPORTS, answer=answer, name=repr(fn_name))


def preamble(convention: Convention, answer: str) -> str:
    """Return what a convention puts before an answer; numpy, which loads slowly, if it is used."""
    numpy = convention is Convention.APPS and re.search(r"\bnp\b", answer)
    return _PREAMBLES[convention] + ("import numpy as np\n" if numpy else "")


def with_preamble(program: str, convention: Convention | None) -> str:
    """Put the imports and limits of a convention before a program; verl sets none for programs."""
    if convention in (None, Convention.VERL):
        return program
    futures, program = future_imports(program)  # they must come first
    return "\n".join([*futures, preamble(convention, program) + program])


# Classification of exits


def reported_codes(stdout: str, token: str) -> list[CaseCode]:
    """Return the codes in the last line that begins with the token of a function-test program.

    An ``AssertionError`` is a wrong answer, even if the answer's own code raises it. Any other
    exception is a runtime error.
    """
    for line in reversed(stdout.splitlines()):
        if line.startswith(f"{token} "):
            try:
                return [CaseCode(code) for code in json.loads(line.removeprefix(f"{token} "))]
            except (ValueError, TypeError):
                continue  # cut off in the middle
    return []


def codes_of(reported: Sequence[CaseCode], cases: int, timed_out: bool) -> list[CaseCode]:
    """Return a code for each case, of which those that ran were reported.

    Without a report a case has not passed: it is a time-out, or else a runtime error for an early
    exit or a crash. A run that exceeds its time is never accepted: without a case that had no time
    left, its last one is the time-out.
    """
    codes = list(reported)[:cases]
    rest = CaseCode.TIMEOUT if timed_out else CaseCode.RUNTIME_ERROR
    codes += [rest] * (cases - len(codes))
    if timed_out and CaseCode.TIMEOUT not in codes:
        codes[-1] = CaseCode.TIMEOUT
    return codes


def signal_name(exit_code: int | None) -> str | None:
    """Return the signal of an exit code, -n or a shell's 128 + n; None for any other code."""
    if exit_code is None or 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if exit_code < 0 else None


def failure_detail(exit_code: int | None, stderr: str | None) -> VerdictDetail | str | None:
    """Return the cause of a failed run if it is known."""
    if cause := _cause(stderr):
        return cause
    return signal_name(exit_code) if exit_code is not None and exit_code < 0 else None


def missing_module(stderr: str | None) -> str | None:
    """Return the module that a program could not find, if that ended it."""
    match = _NO_MODULE.match(last_line(stderr))
    return match[1] if match else None


def _cause(stderr: str | None) -> VerdictDetail | None:
    # An uncaught std::bad_alloc ends a program by SIGABRT.
    last = last_line(stderr).strip().removeprefix("what():").lstrip()
    if last.startswith(("MemoryError", "std::bad_alloc")):
        return VerdictDetail.MEMORY_LIMIT
    if any(sign in (stderr or "") for sign in _REFUSED):
        return VerdictDetail.MEMORY_LIMIT
    return VerdictDetail.MISSING_MODULE if missing_module(stderr) else None


def last_line(text: str | None) -> str:
    return (text or "").rstrip().rsplit("\n", 1)[-1]


def _program(setup: str, answer: str, tests: list[str]) -> str:
    # ascii() escapes lone surrogates and everything else that an encoding could change.
    arguments = ", ".join(ascii(part) for part in (setup, answer, tests))
    return f"{source('functions')}\n\nrun({arguments})\n"


def exit_detail(
    codes: Sequence[CaseCode], return_code: int | None, stderr: str, timed_out: bool
) -> VerdictDetail | str | None:
    """Return the cause of a program's runtime errors if it is known."""
    if CaseCode.RUNTIME_ERROR not in codes or timed_out:
        return None
    if cause := _cause(stderr):
        return cause
    if return_code == 0 or last_line(stderr).startswith("SystemExit"):
        return VerdictDetail.EARLY_EXIT
    return signal_name(return_code)
