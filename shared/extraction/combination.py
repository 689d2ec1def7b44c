"""Combination of Python blocks: what the chosen block lacks is taken from the blocks around it.

A name that the chosen block uses and binds nowhere comes from the nearest block before it that
binds the name at top level, or else from the first one behind it that defines it as a function or
class or imports it; likewise what these blocks lack. If variables are taken, so are the steps
between that change them. Test code and examples that use the chosen
block give nothing. From a block are taken its imports, definitions and other statements, but no
examples, tests and main guards, nothing that the chosen block defines itself, and no reading of
input unless the wanted names come from it. Of an earlier version of the answer only imports,
definitions and constants are taken.
"""

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from shared.extraction.python_source import (
    bound_by_statement,
    future_imports,
    parse,
    reads_input,
    writes_output,
)
from shared.extraction.snippet import Snippet

_MOST_BLOCKS = 20
_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Providers:
    """The blocks that bind each name."""

    snippets: Sequence[Snippet]
    places: dict[str, list[int]]

    @classmethod
    def of(cls, snippets: Sequence[Snippet], usable: Sequence[bool]) -> "Providers":
        places: dict[str, list[int]] = defaultdict(list)
        for place, snippet in enumerate(snippets):
            if usable[place] and snippet.tree and not snippet.session and not snippet.is_test:
                for name in snippet.functions | snippet.variables:
                    places[name].append(place)
        return cls(snippets, dict(places))

    def needed_by(self, chosen: int, names: Set[str] = frozenset()) -> dict[int, set[str]]:
        """The blocks that the chosen one needs, each with the names that are taken from it."""
        first = self.snippets[chosen]
        wanted = [(name, chosen) for name in sorted(self._lacking(first, names))]
        taken: dict[int, set[str]] = {}
        seen = {name for name, _ in wanted}
        while wanted:
            name, user = wanted.pop()
            place = self._provider(name, user, chosen)
            if place is None or (place not in taken and len(taken) == _MOST_BLOCKS):
                continue
            taken.setdefault(place, set()).add(name)
            provider = self.snippets[place]
            further = provider.missing - provider.imported - first.functions - seen
            seen |= further
            wanted += [(name, place) for name in sorted(further)]
        for place in self._steps_between(taken, chosen):
            taken.setdefault(place, set())
        return taken

    def _steps_between(self, taken: dict[int, set[str]], chosen: int) -> list[int]:
        """Blocks that change variables which were taken, such as ``values.sort()``."""
        variables = {n for i, names in taken.items() for n in names & self.snippets[i].variables}
        if not variables:
            return []
        known = variables.union(*(self.snippets[i].names for i in taken))
        steps = range(max(min(taken) + 1, chosen - _MOST_TRIES), chosen)
        return [i for i in steps if self._is_step(self.snippets[i], variables, known)]

    def _is_step(self, snippet: Snippet, variables: Set[str], known: Set[str]) -> bool:
        missing = snippet.missing
        if snippet.tree is None or snippet.session or snippet.is_test or snippet.writes:
            return False
        return bool(missing & variables) and missing <= known and any(snippet.parts())

    def _lacking(self, snippet: Snippet, names: Set[str]) -> frozenset[str]:
        missing = (snippet.missing - snippet.imported) | (names - snippet.names)
        return frozenset(missing) | frozenset(
            name for name in snippet.imported if self._defined(name)
        )

    def _defined(self, name: str) -> bool:
        """Whether a block has the definition that a statement imports from "another file"."""
        return any(
            name in self.snippets[place].names and name not in self.snippets[place].imported
            for place in self.places.get(name, ())[:_MOST_TRIES]
        )

    def _provider(self, name: str, user: int, chosen: int) -> int | None:
        places = self.places.get(name, [])
        middle = bisect_left(places, user)
        for place in reversed(places[max(0, middle - _MOST_TRIES) : middle]):
            if place != chosen and self._may_give(place, chosen):
                return place
        for place in places[middle : middle + _MOST_TRIES]:
            defines = name in self.snippets[place].functions
            if place not in (chosen, user) and defines and self._may_give(place, chosen):
                return place
        return None

    def _may_give(self, place: int, chosen: int) -> bool:
        """Whether a block is no example or test of what the chosen one defines."""
        block, answer = self.snippets[place], self.snippets[chosen]
        uses = bool(block.missing & answer.definitions)
        return not uses or (place < chosen and not block.acts)


def combine(providers: Providers, chosen: int, names: Set[str]) -> str | None:
    """The chosen block behind what it needs of others; None if it needs nothing that they have."""
    snippet = providers.snippets[chosen]
    needed = providers.needed_by(chosen, names)
    if not needed or snippet.tree is None:
        return None
    taken = frozenset[str]().union(*needed.values())
    parts = [_part(providers.snippets[i], snippet, needed[i]) for i in sorted(needed)]
    answer = _without_imports(snippet, taken & snippet.imported)
    futures, bodies = [], []
    for part in (*parts, answer):
        head, body = future_imports(part)
        futures += head
        bodies.append(body.strip("\n"))
    code = "\n\n".join([*dict.fromkeys(futures), *filter(None, bodies)])
    return code if parse(code) else None


def _part(provider: Snippet, answer: Snippet, wanted: Set[str]) -> str:
    """The statements of a block that go into the combination."""
    version = bool(provider.definitions & answer.definitions) or provider.is_program
    reading = any(
        reads_input(statement) and bound_by_statement(statement) & wanted
        for statement in provider.parts()
    )
    kept = [
        statement
        for statement in provider.parts()
        if _belongs(statement, provider, answer, wanted, version=version, reading=reading)
    ]
    return _source(provider.code, kept)


def _belongs(
    statement: ast.stmt,
    provider: Snippet,
    answer: Snippet,
    wanted: Set[str],
    *,
    version: bool,
    reading: bool,
) -> bool:
    bound = bound_by_statement(statement)
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return not bound <= answer.callables | answer.definitions
    if bound and bound <= answer.functions:
        return False
    if reads_input(statement):
        return reading
    if writes_output(statement) and not bound & wanted:
        return False
    return bool(bound) and bound <= (provider.functions | wanted) if version else True


def _source(code: str, statements: Sequence[ast.stmt]) -> str:
    """The lines of statements; a line that two of them share is written anew."""
    lines = code.split("\n")
    texts: list[str] = []
    last = 0
    for statement in statements:
        first, end = _first_line(statement), statement.end_lineno or statement.lineno
        before = lines[first - 1].encode()[: statement.col_offset].strip()
        after = lines[end - 1].encode()[statement.end_col_offset :].lstrip()
        shared = first <= last or before not in (b"", b"@") or after[:1] == b";"
        texts.append(ast.unparse(statement) if shared else "\n".join(lines[first - 1 : end]))
        last = end
    return "\n".join(texts)


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _without_imports(snippet: Snippet, names: Set[str]) -> str:
    """The code without imports of names that the combination has from another block."""
    if snippet.tree is None or not names:
        return snippet.code
    return _source(snippet.code, list(_other_statements(snippet.tree, names)))


def _other_statements(tree: ast.Module, names: Set[str]) -> Iterator[ast.stmt]:
    for statement in tree.body:
        if not (isinstance(statement, ast.ImportFrom) and bound_by_statement(statement) <= names):
            yield statement
