"""Mutants of programs."""

import ast

from services.data.certify.mutants import mutants, normalized

PROGRAM = '''
import sys

def count(items: list, low: int = 0) -> int:
    """Count the items above a limit."""
    total = 0
    for i in range(1, len(items)):
        if items[i] > low and not items[i] == 7:
            total += abs(items[i - 1])
        else:
            continue
    return max(total, 3) if sorted(items, reverse=True) else items[1:][0]

if __name__ == "__main__":
    print(count([int(one) for one in sys.stdin.read().split()]))
'''


def test_every_kind_of_mistake_is_made():
    mutated = mutants(PROGRAM, most=1000, seed="0")
    lines = {line.strip() for mutant in mutated for line in mutant.code.split("\n")}
    for line in (
        "if items[i] >= low and (not items[i] == 7):",  # comparison
        "if items[i] > low or not items[i] == 7:",  # condition
        "if items[i] > low:",  # dropped condition
        "if items[i] > low and items[i] == 7:",
        "total = 1",  # initial value
        "for i in range(1, len(items) + 1):",  # off by one
        "for i in range(0, len(items)):",
        "total -= abs(items[i - 1])",  # arithmetic
        "total += items[i - 1]",  # dropped call
        "total += abs(items[i + 1])",
        "return min(total, 3) if sorted(items, reverse=True) else items[1:][0]",
        "return max(total, 3) if sorted(items) else items[1:][0]",
        "return items[1:][0]",  # branch
        "pass",  # dropped statement
    ):
        assert line in lines, line
    assert not any('__name__ != "__main__"' in mutant.code for mutant in mutated)


def test_mutants_are_different_programs_and_depend_on_the_seed_alone():
    mutated = mutants(PROGRAM, most=30, seed="0")
    texts = [mutant.code for mutant in mutated]
    assert len(set(texts)) == 30
    assert normalized(PROGRAM) not in texts
    for text in texts:
        assert normalized(text) == text
        ast.parse(text)
    assert mutants(PROGRAM, most=30, seed="0") == mutated
    assert mutants(PROGRAM, most=30, seed="1") != mutated
    kinds = [mutant.change for mutant in mutated[:8]]
    assert len(set(kinds)) == len(kinds)  # in turn


def test_a_program_that_does_not_parse_has_none():
    for text in ("def f(:", "", "x" * 3, "\0"):
        assert mutants(text, most=5, seed="0") == []
