"""Canaries with function tests, as HumanEval and MBPP have them."""

from collections.abc import Iterator

from shared.canaries import programs
from shared.canaries.builder import (
    CPU_LIMIT,
    MIB,
    WALL_LIMIT_ABOVE,
    WALL_LIMIT_BELOW,
    Builder,
    Words,
)
from shared.canaries.expectation import Canary
from shared.statuses import FinalStatus


def function_canaries(build: Builder) -> Iterator[Canary]:
    """Canaries of both kinds of function tests."""
    words = build.words()
    yield _checked(build, "right", programs.FUNCTION_RIGHT, words, FinalStatus.SUCCESS)
    yield _asserted(build, "right assertions", programs.FUNCTION_RIGHT, FinalStatus.SUCCESS)
    wrong, raised = FinalStatus.WRONG_ANSWER, FinalStatus.RUNTIME_ERROR
    yield _asserted(build, "wrong assertions", programs.FUNCTION_WRONG, wrong)
    yield _asserted(build, "raising", programs.FUNCTION_RAISING, raised)
    yield _asserted(build, "syntax", programs.SYNTAX, FinalStatus.SYNTAX_ERROR)
    if not build.profile.own_judging:
        yield _checked(build, "early exit", programs.FUNCTION_EXIT, build.words(), None)
        above, text = build.memory_above()
        yield _limited(build, "memory", ("space", above * MIB), raised, text)
    below = CPU_LIMIT if build.profile.strict else WALL_LIMIT_BELOW
    given = ("work", below.below)
    text = below.below_text()
    yield _limited(build, "time below", given, FinalStatus.SUCCESS, text, below.limit)
    above_ = CPU_LIMIT if build.profile.strict else WALL_LIMIT_ABOVE
    given, text = (above_.kind, above_.above), above_.above_text()
    yield _limited(build, "time above", given, FinalStatus.TIMEOUT, text, above_.limit)
    yield _checked(build, "right again", programs.FUNCTION_RIGHT, words, FinalStatus.SUCCESS)


def _checked(
    build: Builder, name: str, template: str, words: Words, status: FinalStatus | None
) -> Canary:
    """An answer with a ``check`` function."""
    row = [build.small() for _ in range(4)]
    lines = [
        "def check(candidate):",
        f"    assert candidate([]) == {{'sum': 0, 'text': '{words['nonce']}'}}",
        f"    found = candidate({row}, step=3)",
        f"    assert found['sum'] == {3 * sum(row)}, found",
        f"    assert found['text'] == 'žluť-{words['nonce']}'",
        f"    assert list(found['rest']) == {row[1:]}",
    ]
    prompt = f"def {words['first']}(values, step=1):\n"
    tests = {"test": "\n".join(lines), "entry_point": words["first"], "prompt": prompt}
    return build.graded(name, template, words, tests, status, _fault(name, status))


def _asserted(build: Builder, name: str, template: str, status: FinalStatus) -> Canary:
    """An answer with assertions."""
    words = build.words()
    row, call = [build.small() for _ in range(3)], words["first"]
    tests = [
        f"assert {call}([])['sum'] == 0",
        f"assert {call}({row}, 2)['sum'] == {2 * sum(row)}",
        f"assert {call}({row})['text'] == 'žluť-{words['nonce']}'",
    ]
    return build.graded(name, template, words, {"test_list": tests}, status, _fault(name, status))


def _fault(name: str, status: FinalStatus | None) -> str:
    wanted = "rejected" if status is None else status.value
    return f"the verdict on function tests ({name}) is not {wanted}"


def _limited(
    build: Builder,
    name: str,
    given: tuple[str, float],
    status: FinalStatus,
    fault: str,
    seconds: float | None = None,
) -> Canary:
    """An answer that tries a limit."""
    words, (kind, amount) = build.words(), given
    tests = {"test_list": [f"assert {words['first']}({kind!r}, {amount!r}) == {amount!r}"]}
    limits = build.limits(seconds=seconds, own_memory=kind == "space")
    # The judge rejects one that was not stopped, too: only the time that it used tells.
    late = kind == "work" and status is FinalStatus.TIMEOUT
    most = 0.8 * amount if late else None
    template = programs.FUNCTION_LIMITS
    return build.graded(name, template, words, tests, status, fault, limits, most)
