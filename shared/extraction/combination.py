"""Combination of Python blocks: what the chosen block lacks is taken from the blocks around it.

A name that the chosen block uses and binds nowhere comes from the nearest block before it that
binds the name at top level, or else from the first one behind it that defines or imports it;
likewise what these blocks lack. Tests, example data and examples that use the chosen block give
nothing. From a block are taken its imports, definitions and other steps, except what the chosen
block defines itself, output, and the reading of input that the wanted names do not come from. Of an
earlier version of the answer only imports, definitions and constants are taken.
"""

import ast
from collections.abc import Sequence, Set

from shared.extraction.python_source import (
    DEFINITIONS,
    IMPORTS,
    Source,
    bound_by,
    future_imports,
    is_main_guard,
    parse,
)

_MOST_BLOCKS = 20


def needed_by(
    sources: Sequence[Source], chosen: int, names: Set[str] = frozenset()
) -> dict[int, set[str]]:
    """The places of blocks that the chosen one needs, each with the names taken from it.

    ``names`` are wanted besides. Only the nearest blocks are looked at.
    """
    answer = sources[chosen]
    wanted = [(name, chosen) for name in sorted(answer.missing | (names - set(answer.bound)))]
    if not wanted:
        return {}
    near = range(max(0, chosen - _MOST_BLOCKS), min(len(sources), chosen + _MOST_BLOCKS + 1))
    givers = [i for i in near if i != chosen and _may_give(sources[i], answer, i < chosen)]
    seen = {name for name, _ in wanted}
    taken: dict[int, set[str]] = {}
    while wanted:
        name, user = wanted.pop()
        binding = [i for i in givers if name in sources[i].bound.keys() - sources[i].imported]
        before = [i for i in binding if i < user]
        behind = [i for i in binding if i > user and sources[i].bound[name]]
        if before or behind:
            place = before[-1] if before else behind[0]
            taken.setdefault(place, set()).add(name)
            further = sources[place].missing - answer.bound.keys() - seen
            seen |= further
            wanted += [(name, place) for name in sorted(further)]
    variables = {name for i, names in taken.items() for name in names & sources[i].variables}
    if variables:  # and blocks that change them, such as ``values.sort()``
        given = variables.union(*(sources[i].bound for i in taken))
        for i in [i for i in givers if min(taken) < i < chosen and not sources[i].writes]:
            if sources[i].missing & variables and sources[i].missing <= given:
                taken.setdefault(i, set())
    return taken


def _may_give(source: Source, answer: Source, before: bool) -> bool:
    """Whether a block is no test, no example data and no example of what the chosen one defines."""
    if source.tree is None or source.is_data:
        return False
    if any(name.lower().startswith("test") for name in (*source.definitions, *source.bound)):
        return False
    return not source.missing & answer.definitions or (before and not source.acts)


def combine(sources: Sequence[Source], chosen: int, names: Set[str]) -> str | None:
    """The chosen block behind what it needs of others; None if it needs nothing that they have."""
    answer = sources[chosen]
    needed = needed_by(sources, chosen, names) if answer.tree else {}
    if not needed:
        return None
    taken = frozenset[str]().union(*needed.values()) & answer.imported
    parts = [_part(sources[place], answer, needed[place]) for place in sorted(needed)]
    kept = [s for s in answer.body if not isinstance(s, ast.ImportFrom) or not bound_by(s) & taken]
    parts.append(_lines(answer.code, kept) if taken else answer.code)
    futures, bodies = [], []
    for part in parts:
        head, body = future_imports(part)
        futures += head
        bodies.append(body.strip("\n"))
    code = "\n\n".join([*dict.fromkeys(futures), *filter(None, bodies)])
    return code if parse(code) else None


def _part(source: Source, answer: Source, names: Set[str]) -> str:
    """The statements of a block that go into the combination."""
    own = answer.definitions | (answer.bound.keys() - answer.imported)
    lasting = source.bound.keys() - source.variables
    is_version = source.is_whole or bool(source.definitions & answer.definitions)
    reading = any(bound_by(s) & names and _step(s).reads for s in source.body)

    def belongs(statement: ast.stmt) -> bool:
        bound = bound_by(statement)
        if isinstance(statement, IMPORTS):
            return True
        if isinstance(statement, ast.Assert) or is_main_guard(statement):
            return False
        if bound and bound <= own:
            return False
        if isinstance(statement, DEFINITIONS):
            return True
        step = _step(statement)
        if step.reads:
            return reading
        if (step.writes and not bound & names) or (step.acts and not bound and is_version):
            return False
        if isinstance(statement, ast.Expr):
            return _is_setting(statement.value)
        return not is_version or bound <= lasting | names

    return _lines(source.code, [statement for statement in source.body if belongs(statement)])


def _step(statement: ast.stmt) -> Source:
    return Source("" if isinstance(statement, DEFINITIONS) else ast.unparse(statement))


def _is_setting(value: ast.expr) -> bool:
    """Whether an expression is a call such as ``sys.setrecursionlimit`` or ``values.sort()``."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)


def _lines(code: str, statements: Sequence[ast.stmt]) -> str:
    """The lines of statements; a line that two of them share is written anew."""
    lines = code.split("\n")
    texts: list[str] = []
    last = 0
    for statement in statements:
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        end = statement.end_lineno or statement.lineno
        before = lines[first - 1].encode()[: statement.col_offset].strip()
        after = lines[end - 1].encode()[statement.end_col_offset :].lstrip()
        shared = first <= last or before not in (b"", b"@") or after[:1] == b";"
        texts.append(ast.unparse(statement) if shared else "\n".join(lines[first - 1 : end]))
        last = end
    return "\n".join(texts)
