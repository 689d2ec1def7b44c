"""Function tests (HumanEval, MBPP): one Python file that runs them, and what its end means."""

import json
import re

from services.judge.harness import source
from services.judge.harness.functions import EXIT_CODES
from services.judge.outcome import signal_name
from shared.extraction import Extraction
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, ExtractionReason

EXIT_WRONG_ANSWER = EXIT_CODES[CaseCode.WRONG_ANSWER]
EXIT_SYNTAX_ERROR = EXIT_CODES[CaseCode.COMPILE_ERROR]


def humaneval_program(answer: Extraction, tests: HumanEvalTests) -> str:
    """Build the program that runs ``check(entry_point)``, which is one case.

    What the prompt has before the entry point (imports, helper functions) comes first. An answer
    that was found as the body of a function continues the whole prompt. The answer may define
    everything anew; a ``check`` of its own is replaced by the test's.
    """
    prelude = _before_function(tests.prompt, tests.entry_point)
    code = answer.code
    if answer.reason is ExtractionReason.BODY_ONLY:
        prelude, code = "", f"{tests.prompt.rstrip()}\n{code}"
    # Some tests draw random inputs; a verdict is a function of the answer.
    seed = "import random; random.seed(0)\n" if "random" in tests.test else ""
    return _program(prelude, code, [f"{seed}{tests.test}\ncheck({tests.entry_point})\n"])


def mbpp_program(answer: Extraction, tests: MbppTests) -> str:
    """Build the program that runs each statement of ``test_list``, a case each, in order.

    The setup code runs before the answer, or after it where it needs the answer's names.
    """
    return _program(tests.test_setup_code, answer.code, tests.test_list)


def classify(
    return_code: int | None, stdout: str, stderr: str, token: str, timed_out: bool, cases: int = 1
) -> tuple[list[CaseCode], str | None]:
    """Say how each case of a finished program ended, and in a word why where that is known.

    An ``AssertionError`` is a wrong answer wherever it is raised, be it by the answer's own code;
    any other exception, an early exit or a crash is a runtime error, and a time-out is one for
    the cases that it left without an outcome. Only a token line says that a case passed.

    Args:
        return_code: Exit code; a signal's number as -n or 128 + n; None where it is not known.
        stdout: Standard output, which need not be complete.
        stderr: Standard error.
        token: The token that the program was given on standard input.
        timed_out: Whether the sandbox stopped the program.
        cases: How many tests the program runs.

    Returns:
        As many codes as cases, and ``memory_limit``, ``early_exit``, a signal's name or None.
    """
    codes = _reported(stdout, token)[:cases]
    if len(codes) < cases:
        rest = CaseCode.TIMEOUT if timed_out else _code_of_exit(return_code)
        codes += [rest] * (cases - len(codes))
    return codes, _detail(codes, return_code, stderr, timed_out)


def _program(setup: str, answer: str, tests: list[str]) -> str:
    # ascii() leaves no character that an encoding, or a lone surrogate, could spoil.
    arguments = ", ".join(ascii(part) for part in (setup, answer, tests))
    return f"{source('functions')}\n\nrun({arguments})\n"


def _before_function(prompt: str, name: str) -> str:
    heads = list(re.finditer(rf"^(async )?def {re.escape(name)}\b", prompt, re.MULTILINE))
    return prompt[: heads[-1].start()] if heads else ""


def _reported(stdout: str, token: str) -> list[CaseCode]:
    for line in reversed(stdout.splitlines()):
        if line.startswith(f"{token} "):
            try:
                return [CaseCode(code) for code in json.loads(line.removeprefix(f"{token} "))]
            except (ValueError, TypeError):
                continue  # cut off in the middle
    return []


def _code_of_exit(return_code: int | None) -> CaseCode:
    known = {EXIT_WRONG_ANSWER: CaseCode.WRONG_ANSWER, EXIT_SYNTAX_ERROR: CaseCode.COMPILE_ERROR}
    return known.get(return_code or 0, CaseCode.RUNTIME_ERROR)


def _detail(
    codes: list[CaseCode], return_code: int | None, stderr: str, timed_out: bool
) -> str | None:
    if CaseCode.RUNTIME_ERROR not in codes or timed_out:
        return None
    last_line = (stderr.strip().splitlines() or [""])[-1]
    if last_line.startswith("MemoryError"):
        return "memory_limit"
    if return_code == 0 or last_line.startswith("SystemExit"):
        return "early_exit"
    return signal_name(return_code)
