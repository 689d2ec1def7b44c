"""A configuration in verl's keys, in ours or in both, as one in ours.

Walks through a document by the table of :mod:`shared.verl_keys`: values move to our keys, or are
recorded or refused; two names of one key must agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import JsonValue

from shared.errors import ConfigError
from shared.protocol import shown
from shared.redaction import REDACTED, is_secret_variable
from shared.verl_keys import SAME_NAMES, VERL_KEYS, Fate, Values, VerlKey

_ROWS: dict[str, list[VerlKey]] = {}
for _row in VERL_KEYS:
    _ROWS.setdefault(_row.key, []).append(_row)
_OURS = frozenset([*SAME_NAMES, *(row.target for row in VERL_KEYS if row.fate is Fate.MAPPED)])
# Sections that are walked through; what lies below the others is one value.
_SECTIONS = frozenset(
    name[:end] for name in (*_ROWS, *_OURS) for end, letter in enumerate(name) if letter == "."
)
# The class that verl makes of a section.
_CLASS = "_target_"
_MAX_NAMED = 12
_Path = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """A document in our keys.

    Attributes:
        document: As given, but with our keys in place of verl's.
        given: verl's keys that are not ours under the same name, with their values, but no secret.
        names: Keys of ours and the names under which they were given, where those differ.
    """

    document: Any
    given: Mapping[str, JsonValue]
    names: Mapping[str, str]


def is_known(key: str) -> bool:
    """Whether a dotted key of verl has a place here."""
    key = canonical(key)
    return key.endswith(f".{_CLASS}") or any(
        one in _ROWS or (one in _OURS and one not in _SECTIONS) for one in _with_parents(key)
    )


def canonical(key: str) -> str:
    """Our name of a key of verl; any other key as it is."""
    rows = (row for parent in _with_parents(key) for row in _ROWS.get(parent, []))
    row = next((one for one in rows if one.fate is Fate.MAPPED and not one.beside), None)
    return key if row is None else canonical(row.target + key.removeprefix(row.key))


def translate(
    document: object, overridden: Sequence[str] = (), *, keep: bool = False
) -> Translation:
    """Replace verl's keys in a document by ours.

    Args:
        document: A configuration as parsed, in verl's keys, in ours or in both.
        overridden: Dotted keys from the command line; they count where a file says otherwise.
        keep: Refuse nothing, and leave what has no effect here in the document.

    Raises:
        ConfigError: A value is refused, or two names of a key have different values.
    """
    if not isinstance(document, Mapping):
        return Translation(document, {}, {})
    places = list(_places(document, (), (), document))
    if not keep and (refused := [place for place in places if place.refused]):
        refused.sort(key=lambda place: VERL_KEYS.index(place.rows[-1]))
        raise ConfigError("; ".join(map(_refusal, refused)))
    claims: dict[_Path, list[_Place]] = {}
    for place in places:
        target = tuple(place.path.split(".")) if keep and place.target is None else place.target
        if target is not None:
            claims.setdefault(target, []).append(place)
    result: dict[Any, Any] = {}
    names = {}
    for target, claimants in claims.items():
        chosen = _choose(claimants, overridden)
        _put(result, target, chosen.value)
        if chosen.rows:
            names[_dotted(target)] = chosen.source
    given = {one.source: _without_secrets(one.source, one.value) for one in places if one.rows}
    return Translation(result, given, names)


def notices(given: Mapping[str, JsonValue]) -> list[str]:
    """Describe what a translation found: keys with another name here, keys without effect."""
    document: dict[Any, Any] = {}
    for key, value in given.items():
        _put(document, tuple(key.split(".")), value)
    renamed: dict[str, str] = {}
    without_effect: dict[str, dict[str, list[str]]] = {}
    for place in _places(document, (), (), document):
        row = place.rule
        if row is None or _says_nothing(place.value, row):
            continue
        if place.target is None:
            keys = without_effect.setdefault(row.text, {}).setdefault(place.section, [])
            keys.append(place.source)
        else:
            renamed[place.section] = row.target
    read = [f"{name} is read as {target}" for name, target in renamed.items()]
    lines = [f"config: {', '.join(read)}"] if read else []
    for text, sections in without_effect.items():
        names = [keys[0] if len(keys) == 1 else name for name, keys in sections.items()]
        named = ", ".join(names[:_MAX_NAMED])
        if (more := len(names) - _MAX_NAMED) > 0:
            named += f" and {more} more (run.verl_keys in run.json)"
        lines.append(f"config: {named}: no effect here; {text}")
    return lines


# Walking through a document


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a document: the key that it was given as, and the one that it is for.

    ``rows`` are those that led here, the last one decides; none for a key that has no row.
    ``path`` begins with the deciding row's key.
    """

    source: str
    path: str
    target: _Path | None
    value: Any
    rows: tuple[VerlKey, ...]

    @property
    def rule(self) -> VerlKey | None:
        return self.rows[-1] if self.rows else None

    @property
    def refused(self) -> bool:
        row = self.rule
        return bool(row and row.fate is Fate.REFUSED and not _says_nothing(self.value, row))

    @property
    def section(self) -> str:
        """The key that the deciding row is about, as it was given."""
        return self.source.removesuffix(self.path.removeprefix(self.rows[-1].key)) or self.source


def _places(
    value: object, path: _Path, source: _Path, document: object, rows: tuple[VerlKey, ...] = ()
) -> Iterator[_Place]:
    key = _dotted(path)
    if path and path[-1] == _CLASS:
        return
    if isinstance(value, Mapping) and (not path or (value and key in _SECTIONS)):
        for name, inner in value.items():
            yield from _places(inner, (*path, name), (*source, name), document, rows)
        return
    row = _row_of(key, value, document)
    if row is None:
        before = rows[-1].key + key.removeprefix(rows[-1].target) if rows else key
        yield _Place(_dotted(source), before, path, value, rows)
    elif row.fate is Fate.MAPPED and not _says_nothing(value, row):
        if row.as_list and isinstance(value, str):
            value = [value]
        target = (*row.target.split("."), *path[len(row.key.split(".")) :])
        yield from _places(value, target, source, document, (*rows, row))
    else:
        yield _Place(_dotted(source), key, None, value, (*rows, row))


def _row_of(key: str, value: object, document: object) -> VerlKey | None:
    """The row that speaks for a value: its key's, or that of the nearest section above."""
    for name in _with_parents(key):
        for row in _ROWS.get(name, []):
            if row.only and not _matches(value, row.only):
                continue
            if not row.beside or _has(document, row.beside):
                return row
    return None


def _with_parents(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]


def _says_nothing(value: object, row: VerlKey) -> bool:
    return value is None or _matches(value, row.unless)


def _matches(value: object, patterns: Values) -> bool:
    return any(
        fnmatchcase(value, one) if isinstance(value, str) and isinstance(one, str) else value == one
        for one in patterns
    )


def _has(document: object, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(document, Mapping) or name not in document:
            return False
        document = document[name]
    return True


def _dotted(path: _Path) -> str:
    return ".".join(map(str, path))


def _put(document: dict[Any, Any], path: _Path, value: object) -> None:
    """Set a value in nested mappings; where a part is no mapping, validation has the last word."""
    for name in path[:-1]:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            return
    empty = isinstance(value, Mapping) and not value
    document.setdefault(path[-1], {} if empty else value)


def _choose(claimants: Sequence[_Place], overridden: Sequence[str]) -> _Place:
    """The value that counts for a key of ours.

    Raises:
        ConfigError: There are different values of equal standing.
    """
    given = [one for one in claimants if _is_overridden(one.source, overridden)] or claimants
    if len(given) > 1:
        neutral = [one.rule.neutral for one in given if one.rule and one.rule.neutral is not None]
        given = [one for one in given if one.value not in neutral] or given
        given = [one for one in given if not (one.rule and one.rule.fallback)] or given
    first, *others = given
    for other in others:
        if other.value != first.value:
            raise ConfigError(
                f"{first.source}={shown(first.value)} and {other.source}={shown(other.value)} "
                "contradict each other; keep one of them"
            )
    return first


def _is_overridden(key: str, overridden: Sequence[str]) -> bool:
    return any(
        one == key or one.startswith(f"{key}.") or key.startswith(f"{one}.") for one in overridden
    )


def _without_secrets(key: str, value: Any) -> JsonValue:  # noqa: ANN401 - parsed YAML
    """A value as it may be recorded: verl's keys may be anything, passwords too."""
    if isinstance(value, Mapping):
        return {str(name): _without_secrets(str(name), one) for name, one in value.items()}
    name = key.rpartition(".")[2]
    secret = isinstance(value, str) and value and is_secret_variable(name, value)
    plain: JsonValue = REDACTED if secret else value
    return plain


def _refusal(place: _Place) -> str:
    return f"{place.source}={shown(place.value)}: {place.rows[-1].text}"
