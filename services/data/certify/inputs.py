"""Generated inputs: small changes of the inputs of a problem's own tests.

An input is a value: the arguments of a function as a tuple, or the lines of a standard input as a
list of lists of words. A change is dropped if it breaks a property that all of the problem's inputs
have, such as types, signs, order or a number that counts the rest. Source of the idea: likely
invariants, Ernst et al. 2007, "The Daikon system for dynamic detection of likely invariants".
"""

import ast
import json
import random
import string
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from services.data.certify.mutants import NO_PYTHON
from shared.function_needs import callee
from shared.schemas import HumanEvalTests, MbppTests, StdioTests

Path = tuple[Hashable, ...]
Facts = set[Path]
# Inputs with more characters are not changed: a program may take long for each.
_MOST_CHARACTERS = 4000
_TRIES = 40
# In a list with so many values, an order is no coincidence if several inputs have it.
_LONG, _SEVERAL = 3, 3


def generated_inputs(inputs: Sequence[Any], *, count: int, seed: str) -> list[Any]:
    """Return up to ``count`` further inputs; the same arguments give the same ones."""
    seeds = [value for value in inputs if len(repr(value)) <= _MOST_CHARACTERS]
    if not seeds:
        return []
    kinds = set.union(*(set(_kinds(value)) for value in seeds)) | _coincidences(seeds)
    needed = set.intersection(*(set(_properties(value)) for value in seeds))
    if len(seeds) < _SEVERAL:
        needed = {fact for fact in needed if fact[0] == "count"}
    ranges = _ranges(seeds)
    changes = _Changes(seeds, seed)
    generated: list[Any] = []
    tried = {repr(value) for value in inputs}
    for _ in range(_TRIES * count):
        candidate = changes.input()
        text = repr(candidate)
        if text in tried or len(text) > _MOST_CHARACTERS:
            continue
        tried.add(text)
        usual = set(_kinds(candidate)) <= kinds and needed <= set(_properties(candidate))
        if usual and _within(candidate, ranges):
            generated.append(candidate)
            if len(generated) == count:
                break
    return generated


# Inputs of tests


def inputs_of(tests: StdioTests | HumanEvalTests | MbppTests, entry_point: str) -> list[Any]:
    """Return the inputs of a problem's tests as values, as far as their text has them."""
    if isinstance(tests, StdioTests) and not tests.fn_name:
        return [_words(text) for text in tests.inputs]
    if isinstance(tests, StdioTests):
        return list(_decoded(tests.inputs))
    texts = [tests.test] if isinstance(tests, HumanEvalTests) else tests.test_list
    return [call for text in texts for call in _calls(text, {"candidate", entry_point})]


def _decoded(inputs: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for text in inputs:
        with suppress(ValueError, RecursionError):
            yield tuple(json.loads(line) for line in text.split("\n") if line.strip())


def _calls(text: str, names: set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of calls that have only literals."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except NO_PYTHON:
        return
    for node in nodes:
        if isinstance(node, ast.Call) and callee(node) in names and not node.keywords:
            with suppress(TypeError, *NO_PYTHON):
                yield tuple(map(ast.literal_eval, node.args))


def _words(text: str) -> list[list[Any]]:
    return [[_number(word) for word in line.split(" ")] for line in text.split("\n")]


def _number(word: str) -> Any:  # noqa: ANN401 - a word of an input is a number or a text
    """A word as a number if the number is written like that."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if str(value) == word:
            return value
    return word


def text_of(value: Any) -> str:  # noqa: ANN401 - any input
    """An input as standard input: of a function its arguments in Python's notation."""
    if isinstance(value, tuple):
        return repr(value)
    return "\n".join(" ".join(map(str, line)) for line in value)


# Properties


def _parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401
    """Yield an input and its parts with their paths; below the top, items of a list share one."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(key, (*path, "key"))
            yield from _parts(item, (*path, "item"))
    elif isinstance(value, list | tuple | set | frozenset):
        for place, item in enumerate(value):
            yield from _parts(item, (*path, place if not path and place < _LONG else "item"))


def _kinds(value: Any) -> Iterator[Path]:  # noqa: ANN401 - any input
    """Yield what may be somewhere in an input if it is there in one of the known inputs."""
    for path, part in _parts(value):
        yield (*path, type(part).__name__)
        if _is_number(part):
            yield from ((*path, "below", bound) for bound in (0, 1) if part < bound)
        if isinstance(part, str):
            yield from ((*path, _letter(letter)) for letter in part)
        elif isinstance(part, list | tuple | set | frozenset):
            items = list(part)
            if path and not (_comparable(items) and items == sorted(items)):
                yield *path, "unsorted"
            if len(set(map(_size, items))) > 1:
                yield *path, "lengths"


def _size(value: Any) -> int | None:  # noqa: ANN401 - any part of an input
    return len(value) if hasattr(value, "__len__") else None


def _letter(letter: str) -> str:
    for name in ("ascii_lowercase", "ascii_uppercase", "digits"):
        if letter in getattr(string, name):
            return name
    return letter


def _properties(value: Any) -> Iterator[Path]:  # noqa: ANN401 - any input
    """Yield what must hold for an input if it holds for all known inputs."""
    parts = list(value)
    if isinstance(value, list):  # numbers in the first lines often count the rest
        counted = [len(parts) - place for place in range(_LONG)] + list(map(len, parts[1:_LONG]))
        words = [*parts[0], *(parts[1] if len(parts) > 1 else [])][: 2 * _LONG]
        for i, number in enumerate(words):
            if _is_number(number):
                yield from (("count", i, j) for j, count in enumerate(counted) if number == count)
        parts = parts[0]
    sizes = list(map(_size, parts))
    for i, part in enumerate(parts[:_LONG]):
        for j, other in enumerate(parts[: 2 * _LONG]):
            size = sizes[j]
            if i != j and _is_number(part) and _is_number(other) and part <= other:
                yield "at most", i, j
            if i != j and size is not None and sizes[i] == size:
                yield "equal sizes", i, j
            if _is_number(part) and size is not None:
                relations = {"is": part == size, "at most": part <= size, "less": part < size}
                yield from (("size", i, j, name) for name, holds in relations.items() if holds)


def _coincidences(seeds: Sequence[Any]) -> Facts:
    """Orders that too few inputs show."""
    shown: Counter[Path] = Counter()
    for path, part in (entry for value in seeds for entry in _parts(value)):
        if isinstance(part, list | tuple):
            shown[path] += len(part) >= _LONG
    return {(*path, "unsorted") for path, count in shown.items() if count < _SEVERAL}


def _comparable(items: Sequence[Any]) -> bool:
    return all(map(_is_number, items)) or all(isinstance(item, str) for item in items)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(seeds: Sequence[Any]) -> set[float]:
    numbers = (part for value in seeds for _, part in _parts(value) if _is_number(part))
    # Integers of an input may be too large for a float.
    return {number for number in numbers if abs(number) <= sys.float_info.max}


def _ranges(seeds: Sequence[Any]) -> dict[Hashable, tuple[float, float]]:
    """The least and the greatest number by place in a standard input; empty for arguments."""
    ranges: dict[Hashable, tuple[float, float]] = {}
    for place, number in (entry for value in seeds for entry in _places(value)):
        low, high = ranges.get(place, (number, number))
        ranges[place] = min(low, number), max(high, number)
    return ranges


def _within(value: Any, ranges: dict[Hashable, tuple[float, float]]) -> bool:  # noqa: ANN401
    bounds = ((ranges.get(place), number) for place, number in _places(value))
    return all(ends is not None and ends[0] <= number <= ends[1] for ends, number in bounds)


def _places(value: Any) -> Iterator[tuple[Hashable, float]]:  # noqa: ANN401
    for row, line in enumerate(value if isinstance(value, list) else ()):
        for column, word in enumerate(line):
            if _is_number(word):
                yield (min(row, _LONG), min(column, _LONG)), word


# Changes


class _Changes:
    """Random changes of values. Standard input keeps the number of its lines and words."""

    def __init__(self, seeds: Sequence[Any], seed: str) -> None:
        self._seeds = seeds
        self._stdin = isinstance(seeds[0], list)
        self._numbers = [*sorted(_numbers(seeds)), 0, 1, 2]
        texts = (part for value in seeds for _, part in _parts(value) if isinstance(part, str))
        self._letters = sorted({letter for text in texts for letter in text}) or ["a"]
        self._chance = random.Random(seed)

    def input(self) -> Any:  # noqa: ANN401 - any input
        """Change one to three parts of an input; sometimes take a part from another input."""
        value = self._chance.choice(self._seeds)
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            if not value:
                break
            other = self._chance.choice(self._seeds)
            place = self._chance.randrange(len(value))
            part = self._value(value[place])
            if self._chance.random() < 0.2 and len(other) == len(value):
                part = other[place]
            value = type(value)([*value[:place], part, *value[place + 1 :]])
        return value

    def _value(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            number = int(self._chance.choice(self._numbers))
            step = self._chance.randint(-10, 10)
            near = (value + 1, value - 1, value + step, value * 2, value // 2, -value, number)
            return self._chance.choice(near)
        if isinstance(value, float):
            other = float(self._chance.choice(self._numbers))
            near_by = (value + 1, value - 0.5, value * 2, value / 2)
            return self._chance.choice((*near_by, -value, other))
        if isinstance(value, str):
            return "".join(self._items(list(value), self._letter))
        if isinstance(value, dict):
            return dict(self._items(list(value.items()), self._pair))
        if isinstance(value, list | tuple | set | frozenset):
            items = self._items(list(value), self._value)
            hashable = not isinstance(value, set | frozenset) or all(map(_is_hashable, items))
            return type(value)(items) if hashable else value
        return value

    def _pair(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        key, item = pair
        if self._chance.random() < 0.5:
            return self._value(key), item
        return key, self._value(item)

    def _letter(self, letter: str) -> str:
        kinds = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
        alike = next((kind for kind in kinds if letter in kind), letter)
        seen = self._chance.choice(self._letters)
        return self._chance.choice((letter.swapcase(), self._chance.choice(alike), seen))

    def _items(self, items: list[Any], change: Callable[[Any], Any]) -> list[Any]:
        """Change one item, swap two, reverse or sort; or remove, repeat or add some."""
        if not items:
            return items
        place, other = (self._chance.randrange(len(items)) for _ in range(2))
        kind = self._chance.randrange(6 if self._stdin else 10)
        if kind < 4:
            return [*items[:place], change(items[place]), *items[place + 1 :]]
        if kind == 4:
            items = list(items)
            items[place], items[other] = items[other], items[place]
            return items
        if kind == 5:
            return items[::-1] if self._chance.random() < 0.5 else sorted(items, key=repr)
        if kind == 6:
            return [*items[:place], *items[place + 1 :]]
        if kind == 7:
            return [*items[:place], items[other], *items[place:]]
        if kind == 8:
            return items[: place + 1] if self._chance.random() < 0.8 else []
        return [*items, *(change(item) for item in items[place : place + 3])]


def _is_hashable(value: object) -> bool:
    return isinstance(value, Hashable) and not isinstance(value, tuple)
