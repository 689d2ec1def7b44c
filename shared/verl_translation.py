"""A configuration in verl's keys, in ours or in both, as one in ours.

Walks through a document by the tables of :mod:`shared.verl_keys`: values move to our keys, or are
recorded or refused; two names of one key must agree.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import JsonValue

from shared.errors import ConfigError
from shared.protocol import shown
from shared.redaction import REDACTED, is_secret_variable
from shared.verl_keys import COMPLETIONS, FALLBACKS, MAPPED, RECORDED, REFUSED, SECTIONS, USUAL

# Sections that are walked through; what lies below the others is one value.
_WALKED = frozenset(
    name[:end]
    for name in (*SECTIONS, *SECTIONS.values(), *MAPPED, *MAPPED.values(), *REFUSED, *RECORDED)
    for end, letter in enumerate(name)
    if letter == "."
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
    """

    document: Any
    given: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a document.

    ``key`` is verl's present name of ``source``, ``entry`` the key of a table that decided; empty
    if none did. ``target`` is our key; None if the value has no effect.
    """

    source: str
    key: str
    entry: str
    target: _Path | None
    value: Any

    @property
    def says_nothing(self) -> bool:
        usual = USUAL.get(self.key)
        if isinstance(usual, str) and isinstance(self.value, str):
            return not self.value or fnmatchcase(self.value, usual)
        return not self.value or self.value == usual

    @property
    def refusal(self) -> str:
        """Why the value is refused; empty if it is not."""
        text = "" if self.says_nothing else REFUSED.get(self.entry, "")
        return text and f"{self.source}={shown(self.value)}: {text}"

    @property
    def section(self) -> str:
        """The key that the entry is about, as it was given."""
        if self.entry in SECTIONS:
            return self.entry
        return self.source.removesuffix(self.key.removeprefix(self.entry)) or self.source


def canonical(key: str) -> str:
    """Our name of a key of verl; any other key as it is."""
    target = _place(key, (key,), "", {}).target
    return key if target is None else _dotted(target)


def translate(document: object, overridden: Sequence[str] = ()) -> Translation:
    """Replace verl's keys in a document by ours.

    ``overridden`` are dotted keys from the command line; they count where a file differs.

    Raises:
        ConfigError: A value is refused, or two names of a key have different values.
    """
    if not isinstance(document, Mapping):
        return Translation(document, {})
    places = list(_places(document, (), document))
    if refused := list(filter(None, (place.refusal for place in places))):
        raise ConfigError("; ".join(refused))
    claims: dict[_Path, list[_Place]] = {}
    for place in places:
        if place.target is not None:
            claims.setdefault(place.target, []).append(place)
    result: dict[Any, Any] = {}
    for target, claimants in claims.items():
        _put(result, target, _choose(claimants, overridden).value)
    given = {one.source: _without_secrets(one.source, one.value) for one in places if one.entry}
    return Translation(result, given)


def notices(given: Mapping[str, JsonValue]) -> list[str]:
    """Describe what a translation found: keys with another name here, keys without effect."""
    document: dict[Any, Any] = {}
    for key, value in given.items():
        _put(document, tuple(key.split(".")), value)
    renamed: dict[str, str] = {}
    without_effect: dict[str, dict[str, None]] = {}
    for place in _places(document, (), document):
        if not place.entry or place.value is None:
            continue
        if place.target is not None:
            name = SECTIONS.get(place.entry) or _dotted(place.target)
            renamed[place.section] = name
        elif not place.says_nothing:
            text = RECORDED.get(place.entry) or REFUSED[place.entry]
            without_effect.setdefault(text, {})[place.section] = None
    read = [f"{name} is read as {target}" for name, target in renamed.items()]
    lines = [f"config: {', '.join(read)}"] if read else []
    for text, sections in without_effect.items():
        named = ", ".join([*sections][:_MAX_NAMED])
        if (more := len(sections) - _MAX_NAMED) > 0:
            named += f" and {more} more (run.verl_keys in run.json)"
        lines.append(f"config: {named}: no effect here; {text}")
    return lines


def _places(value: object, path: _Path, document: Mapping[Any, Any]) -> Iterator[_Place]:
    """Walk through a document, to the values of all keys that a table could name."""
    key = _dotted(path)
    if isinstance(value, Mapping) and (not path or (value and _present(key)[0] in _WALKED)):
        for name, inner in value.items():
            yield from _places(inner, (*path, name), document)
    elif path[-1:] not in ((), (_CLASS,)):
        yield _place(key, path, value, document)


def _place(source: str, path: _Path, value: object, document: Mapping[Any, Any]) -> _Place:
    key, section = _present(source)
    for name in _with_parents(key):
        if name in MAPPED:
            data = document.get("data")
            of_evaluation = isinstance(data, Mapping) and "response_key" in data
            mapped = COMPLETIONS if name == "data.path" and of_evaluation else MAPPED[name]
            target = tuple((mapped + key.removeprefix(name)).split("."))
            return _Place(source, key, name, None if value is None else target, value)
        if name in REFUSED or name in RECORDED:
            return _Place(source, key, name, None, value)
    return _Place(source, key, section, tuple(key.split(".")) if section else path, value)


def _present(source: str) -> tuple[str, str]:
    """The present name of a key, and the older section that it was given in; empty for others."""
    section = next((one for one in _with_parents(source) if one in SECTIONS), "")
    return (SECTIONS[section] + source.removeprefix(section) if section else source), section


def _with_parents(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]


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
    preferences: tuple[Callable[[_Place], bool], ...] = (
        lambda place: _is_overridden(place.source, overridden),
        lambda place: place.value is not None,
        # As in verl, whose rollout has one sample unless data.n_samples has more.
        lambda place: not (place.key.endswith(".rollout.n") and place.value == 1),
        lambda place: place.entry not in FALLBACKS,
    )
    for preferred in preferences:
        claimants = list(filter(preferred, claimants)) or claimants
    first, *others = claimants
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
