"""Canaries with standard input and output, in Python and C++."""

import zlib
from collections.abc import Iterator, Sequence
from string import Template

from shared.canaries import programs
from shared.canaries.builder import (
    CPU_LIMIT,
    MIB,
    WALL_LIMIT_ABOVE,
    WALL_LIMIT_BELOW,
    Builder,
    TimeLimit,
    Trial,
    Words,
    fails,
    passes,
    too_late,
)
from shared.canaries.expectation import Canary, ExpectedCase
from shared.statuses import CaseCode, FinalStatus, VerdictDetail

_LONG_INPUT = 3 * MIB // 2
_WAIT = 0.35
_LINE = 64


def program_canaries(build: Builder) -> Iterator[Canary]:
    """Canaries in Python."""
    words, rows = build.words(), _rows(build)
    yield _right(build, "right", words, rows)
    yield _wrong(build, words, rows)
    yield _bytes(build)
    if build.profile.strict:
        yield _special_judge(build)
    yield from _limits(build)
    yield _processes(build)
    yield _syntax(build, programs.SYNTAX)
    yield _forging(build)
    yield _right(build, "right again", words, _rows(build))


_Row = tuple[list[int], str]


def _rows(build: Builder) -> list[_Row]:
    """Inputs of the right program: numbers and a text."""
    letters = "žščřěů"
    return [
        (
            [build.small() for _ in range(length)],
            f"{build.number()} {build.random.choice(letters)}漢字🐍",
        )
        for length in (0, 1, 5)
    ]


def _right(build: Builder, name: str, words: Words, rows: Sequence[_Row]) -> Canary:
    fault = (
        "a right program in Python 3.10 with Unicode text is not accepted, or finds files that "
        "another program left"
    )
    trials = _right_trials(words, rows, passes(fault))
    return build.stdio(name, programs.RIGHT, words, trials, fault)


def _right_trials(words: Words, rows: Sequence[_Row], expected: ExpectedCase) -> list[Trial]:
    """Cases with the outputs of the right program."""
    return [
        Trial(
            f"{' '.join(map(str, row))}\n{text}\n",
            f"{_matched(row)} {words['nonce']}\n{text[::-1]}\n",
            expected,
        )
        for row, text in rows
    ]


def _matched(row: Sequence[int]) -> str:
    """What the right program computes."""
    if len(row) < 2:
        return f"one {row[0].bit_count()}" if row else "none"
    products = (a * b for a, b in zip(row, [*row[1:], row[0]], strict=True))
    return f"{len(row)} {sum(products)}"


def _wrong(build: Builder, words: Words, rows: Sequence[_Row]) -> Canary:
    """A wrong answer to the inputs of the right one, for results remembered by the input alone."""
    fault = "a wrong output is not judged a wrong answer"
    trials = _right_trials(words, rows, fails(fault, CaseCode.WRONG_ANSWER))
    return build.stdio("wrong", programs.WRONG, build.words(), trials, fault)


def _special_judge(build: Builder) -> Canary:
    fault = "a special judge does not decide as it must"
    numbers = [str(build.number()) for _ in range(4)]
    right, expected = " ".join(numbers) + "\n", " ".join(reversed(numbers)) + "\n"
    trials = [
        Trial(right, expected, passes(fault)),
        Trial(right, f"{build.number()} {expected}", fails(fault, CaseCode.WRONG_ANSWER)),
    ]
    words = build.words()
    tests = {
        "inputs": [trial.stdin for trial in trials],
        "outputs": [trial.output for trial in trials],
        "checker_source": Template(programs.SPECIAL_JUDGE).substitute(words),
    }
    cases = [trial.expected for trial in trials]
    return build.judged("special judge", programs.ECHO, words, tests, cases, fault)


def _bytes(build: Builder) -> Canary:
    fault = "input or output is not passed on byte by byte"
    words = build.words()
    nonce = words["nonce"]
    texts = [f"{nonce}\n", "žluťoučký kůň 漢字 🐍\u2028end\n"]
    if build.profile.strict:
        texts += [f"a\r\nb\r{nonce}\r\n", f"{nonce} no newline", f"{nonce}\n\n \t\n", "a\0b\n"]
    outputs = [f"{len(text.encode())}\n{text}" for text in texts]
    trials = [
        Trial(text, output, passes(fault, output if build.profile.strict else None))
        for text, output in zip(texts, outputs, strict=True)
    ]
    line = f"{nonce} {build.number()} ž\n"
    long = line * (_LONG_INPUT // len(line.encode()))
    checksum = f"{len(long.encode())} {zlib.crc32(long.encode())} {nonce}"
    text = f"input is cut or changed: {len(long.encode())} bytes"
    trials.append(Trial(long, checksum, passes(text)))
    return build.stdio("bytes", programs.BYTES, words, trials, fault)


def _processes(build: Builder) -> Canary:
    fault = "a right program with threads, processes and a shell is not accepted"
    words, number = build.words(), build.small()
    output = f"{number + 1} {number * number} 7 11 {words['nonce']}\n"
    trials = [Trial(f"{number}\n", output, passes(fault))]
    return build.stdio("processes", programs.PROCESSES, words, trials, fault)


def _syntax(build: Builder, template: str) -> Canary:
    fault = "a program that does not compile is not a syntax error"
    tests = {"inputs": ["1 2\n"], "outputs": [str(build.number())]}
    return build.graded("syntax", template, build.words(), tests, FinalStatus.SYNTAX_ERROR, fault)


def _forging(build: Builder) -> Canary:
    fault = "a program that forges its result or finds the expected output is accepted"
    words = build.words()
    codes = frozenset({CaseCode.WRONG_ANSWER, CaseCode.RUNTIME_ERROR})
    output = f"{words['mark']}-{build.number()}"
    trials = [Trial(f"{build.number()}\n", output, ExpectedCase(codes, fault))]
    return build.stdio("forging", programs.FORGING, words, trials, fault)


# Limits: one program, whose input says which of them it tries


def _limits(build: Builder) -> Iterator[Canary]:
    fault = "programs at their limits are not judged as they must be"
    strict = build.profile.strict
    words = build.words()
    time = CPU_LIMIT if strict else WALL_LIMIT_BELOW
    trials = [*_memory(build, _done(words)), *_endings(build, _done(words))]
    trials += _output_and_waiting(build, words) if strict else []
    trials.append(_time_below(time, _done(words)))
    if strict:
        # The last one, because a run may allow a single time-out.
        trials.append(_time_above(time, _done(words)))
    limits = build.limits(seconds=time.limit, own_memory=True)
    yield build.stdio("limits", programs.LIMITS, words, trials, fault, limits)
    if not strict:
        words = build.words()
        trials = [_time_above(WALL_LIMIT_ABOVE, _done(words))]
        limits = build.limits(seconds=WALL_LIMIT_ABOVE.limit)
        yield build.stdio("time limit", programs.LIMITS, words, trials, fault, limits)


def _done(words: Words) -> str:
    return f"done {words['nonce']}\n"


def _memory(build: Builder, output: str) -> Iterator[Trial]:
    if build.profile.own_judging:
        return
    below, text = build.memory_below()
    if below:
        yield Trial(f"space {below * MIB}\n", output, passes(text))
    above, text = build.memory_above()
    told = build.profile.strict and build.profile.language == "python"
    detail = VerdictDetail.MEMORY_LIMIT if told else None
    expected = fails(text, CaseCode.RUNTIME_ERROR, detail)
    yield Trial(f"space {above * MIB}\n", output, expected)


def _endings(build: Builder, output: str) -> Iterator[Trial]:
    text = "an exit code is lost: a right output with exit code 3 is not a runtime error"
    yield Trial("exit 3\n", output, fails(text, CaseCode.RUNTIME_ERROR))
    text = "a signal is lost: the end of a program that SIGSEGV killed is another one"
    detail = "SIGSEGV" if build.profile.strict else None
    yield Trial("signal 11\n", output, fails(text, CaseCode.RUNTIME_ERROR, detail))


def _output_and_waiting(build: Builder, words: Words) -> Iterator[Trial]:
    limit = build.limits().output_mb * MIB
    below, above = limit - _LINE * 64, limit + _LINE * 1024
    line = words["nonce"].ljust(_LINE - 1, "0") + "\n"
    text = f"output is cut or refused: {below} bytes under a limit of {limit}"
    yield Trial(f"print {below}\n", line * (below // _LINE), passes(text))
    text = f"output limit not enforced: {above} bytes under a limit of {limit}"
    expected = fails(text, CaseCode.RUNTIME_ERROR, VerdictDetail.OUTPUT_LIMIT)
    yield Trial(f"print {above}\n", line * (above // _LINE), expected)
    text = f"waiting is counted as work: {_WAIT} s asleep under a limit of {CPU_LIMIT.limit} s"
    yield Trial(f"wait {_WAIT}\n", _done(words), passes(text))


def _time_below(time: TimeLimit, output: str) -> Trial:
    return Trial(f"work {time.below:g}\n", output, passes(time.below_text()))


def _time_above(time: TimeLimit, output: str) -> Trial:
    return Trial(f"{time.kind} {time.above:g}\n", output, too_late(time.above_text()))


# C++


def cpp_canaries(build: Builder) -> Iterator[Canary]:
    """Canaries in C++; few, because each has to be compiled."""
    words = build.words()
    fault = "a right program in C++17 is not accepted"
    trials = [_computed(f"add {build.small()}", words, passes(fault)) for _ in range(2)]
    yield build.stdio("right", programs.CPP, words, trials, fault)
    yield _cpp_limits(build, words)
    yield _syntax(build, programs.CPP_SYNTAX)


def _cpp_limits(build: Builder, words: Words) -> Canary:
    fault = "programs in C++ at their limits are not judged as they must be"
    trials = [*_memory(build, ""), next(_endings(build, ""))]
    time = CPU_LIMIT if build.profile.strict else None
    if time:
        trials += [_time_below(time, ""), _time_above(time, "")]
    trials = [_computed(trial.stdin.strip(), words, trial.expected) for trial in trials]
    limits = build.limits(seconds=time.limit if time else None, own_memory=True)
    return build.stdio("limits", programs.CPP, words, trials, fault, limits)


def _computed(line: str, words: Words, expected: ExpectedCase) -> Trial:
    """A case of the C++ program, with the output that it computes."""
    amount = int(float(line.split()[1])) % 1000
    return Trial(f"{line}\n", f"{amount + 7} {amount * 7} {words['nonce']}\n", expected)
