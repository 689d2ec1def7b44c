"""Test runner for function tests, prepended as source text to every such program.

It runs in the sandbox, not in the judge. Standard library and Python 3.8 syntax only. It executes
the setup, the answer and each test, and writes to the real standard output a line
``<token> [codes]`` after each test, with verl's numeric codes. Without that line no test has
passed, so an early exit is never accepted. The answer runs as a module that is not named
``__main__`` (a main guard does not run), with empty standard input and discarded output.

The token arrives on standard input and is in no file while the answer runs. This guards against
early exits, patched or closed streams, patched built-in functions, tracing, output after the tests,
redefined ``check`` functions and answers that read their program's file. It does not guard against
an answer that walks the stack frames to find the token, or that returns objects which are equal to
everything: tests that share a process with the answer cannot exclude either.
"""

from __future__ import annotations

import os
import sys
import types

# Bound before the answer runs, because it may replace them.
from builtins import (
    AssertionError,
    BaseException,
    compile,
    exec,
    isinstance,
    len,
    type,
)

PASSED, WRONG_ANSWER, RUNTIME_ERROR, COMPILE_ERROR = 1, 0, -2, -4
MAX_TRACEBACK = 4000


sources: dict[str, str] = {}  # source texts without a file, for tracebacks


class AnswerDoesNotCompile(Exception):
    pass


def execute(source: str, filename: str, namespace: dict[str, object]) -> None:
    sources[filename] = source
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)


def load(setup: str, answer: str, namespace: dict[str, object]) -> None:
    try:
        code = compile(answer, "<answer>", "exec", dont_inherit=True)
    except BaseException as error:
        raise AnswerDoesNotCompile from error
    sources["<answer>"] = answer
    run_setup_later = False
    try:
        execute(setup, "<setup>", namespace)
    except NameError:
        run_setup_later = True  # two MBPP setups use a class of the answer
    try:
        exec(code, namespace)
    except EOFError:
        pass  # raised by an example call below the functions that reads standard input
    if run_setup_later:
        execute(setup, "<setup>", namespace)


def code_of(error: BaseException) -> int:
    if isinstance(error, AnswerDoesNotCompile):
        return COMPILE_ERROR
    return WRONG_ANSWER if isinstance(error, AssertionError) else RUNTIME_ERROR


def describe(error: BaseException) -> str:
    shown = error.__cause__ or error if isinstance(error, AnswerDoesNotCompile) else error
    try:
        import linecache  # slow to load, and only needed for a failure
        import traceback

        for name, text in sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        lines = traceback.format_exception(type(shown), shown, shown.__traceback__)
        return "".join(lines)[-MAX_TRACEBACK:]
    except BaseException:
        return type(shown).__name__ + "\n"


def run(setup: str, answer: str, tests: list[str]) -> None:
    token = os.read(0, 100).decode().strip()
    write, leave = os.write, os._exit
    settrace, setprofile = sys.settrace, sys.setprofile
    out, err, null = os.dup(1), os.dup(2), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    module = types.ModuleType("answer")
    sys.modules["answer"] = module  # dataclasses and pickle look up a class's module
    sys.modules["__main__"] = module  # an import must not reach this module
    codes: list[int] = []
    failure = ""
    try:
        load(setup, answer, module.__dict__)
    except BaseException as error:
        codes = [code_of(error)] * len(tests)
        failure = describe(error)
    for test in tests[len(codes) :]:
        settrace(None)  # a tracing function could skip the lines of a test
        setprofile(None)
        try:
            execute(test, "<test>", module.__dict__)
            codes.append(PASSED)
        except BaseException as error:
            codes.append(code_of(error))
            failure = failure or describe(error)
        # Written at once: a later test may hang or kill the process.
        write(out, f"\n{token} {codes}\n".encode())
    write(err, failure.encode("utf-8", "backslashreplace"))
    write(out, f"\n{token} {codes}\n".encode())
    leave(0 if codes == [PASSED] * len(tests) else 1)
