"""Measurement protocol: the role of every configuration leaf, fingerprints and differences.

A leaf of the configuration either changes the measured number (its role is *protocol*), controls
where services run and how they retry (*operation*), or only describes the run and its outputs
(*recorded*). The role is part of the field's type, so the run's identity, the checks of ``plumb
compare``, and the reference tables in the documents are derived from one declaration.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import FieldInfo

from shared.redaction import redact_address, redact_values
from shared.text import shorten_end

T = TypeVar("T")


class Role(StrEnum):
    """The effect of a change of a leaf on a run.

    ``PROTOCOL``: the run becomes another measurement, so a run is not resumed with it.
    ``OPERATION``: two sessions of one run may differ in it. ``RECORDED``: a label or an output.
    """

    PROTOCOL = "protocol"
    OPERATION = "operation"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class LeafRole:
    """The declared role of a leaf.

    ``subject``: part of the protocol that compared runs are expected to differ in, such as the
    model or a seed. A run is not resumed with another value; a comparison only lists the
    difference. ``numerics``: an operational setting of the engine that can change low bits of
    greedy decoding. A run is resumed with another value; a comparison lists the difference.
    """

    role: Role
    subject: bool = False
    numerics: bool = False


InProtocol = Annotated[T, LeafRole(Role.PROTOCOL)]
Subject = Annotated[T, LeafRole(Role.PROTOCOL, subject=True)]
Operation = Annotated[T, LeafRole(Role.OPERATION)]
Numerics = Annotated[T, LeafRole(Role.OPERATION, numerics=True)]
Recorded = Annotated[T, LeafRole(Role.RECORDED)]


class Section(BaseModel):
    """A part of the configuration. Each field is a section, a mapping of sections, or has a role.

    Raises:
        TypeError: A subclass has a field that is none of these.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - pydantic's signature
        super().__pydantic_init_subclass__(**kwargs)
        for name, info in cls.model_fields.items():
            if _declared(info) is None and _section_of(info) is None:
                raise TypeError(
                    f"{cls.__name__}.{name}: a configuration leaf without a role; annotate it with "
                    "InProtocol, Subject, Operation, Numerics or Recorded (shared.protocol)"
                )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf as declared; ``*`` in ``path`` stands for the keys of a mapping of sections."""

    path: str
    declared: LeafRole
    info: FieldInfo


def leaves(section: type[Section], prefix: str = "") -> Iterator[Leaf]:
    """Yield all leaves below a section in the order of their definition."""
    for name, info in section.model_fields.items():
        path = f"{prefix}{name}"
        if declared := _declared(info):
            yield Leaf(path, declared, info)
        elif nested := _section_of(info):
            kind, is_mapping = nested
            yield from leaves(kind, f"{path}.*." if is_mapping else f"{path}.")


@dataclass(frozen=True, slots=True)
class LeafDifference:
    """A leaf with two values; None if one side does not have the leaf."""

    path: str
    first: JsonValue
    second: JsonValue

    def __str__(self) -> str:
        return f"{self.path} ({shown(self.first)} there, {shown(self.second)} here)"


class Protocol(BaseModel):
    """All settings that identify a measurement, by the dotted path of their leaf.

    Unset leaves (None) are omitted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    leaves: dict[str, JsonValue]

    @classmethod
    def of(cls, section: Section) -> Self:
        """Collect the leaves; an address is without its secrets, which are no part of identity."""
        found = values(section, lambda leaf: leaf.role is Role.PROTOCOL)
        subjects = values(section, lambda leaf: leaf.subject)
        shown = {
            path: redact_address(value)
            for path, value in subjects.items()
            if isinstance(value, str) and "://" in value
        }
        return cls(leaves=found | shown)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 over the leaves; the same for the same protocol on every machine."""
        return hashlib.sha256(json.dumps(self.leaves, sort_keys=True).encode()).hexdigest()

    def diff(self, other: "Protocol") -> list[LeafDifference]:
        """The leaves that differ, in the order of this protocol, then of the other one."""
        return differences(self.leaves, other.leaves)


def differences(
    first: Mapping[str, JsonValue], second: Mapping[str, JsonValue]
) -> list[LeafDifference]:
    """Compare two sets of leaf values by path."""
    return [
        LeafDifference(path, first.get(path), second.get(path))
        for path in dict.fromkeys([*first, *second])
        if (path in first, first.get(path)) != (path in second, second.get(path))
    ]


def values(section: Section, wanted: Callable[[LeafRole], bool]) -> dict[str, JsonValue]:
    """The values of the wanted leaves as JSON, by path; mappings are flattened, None is omitted."""
    return {
        path: value
        for place, declared, holder, name in _walk(type(section), section.model_dump(mode="json"))
        if wanted(declared) and holder[name] is not None
        for path, value in _flat(place, holder[name])
    }


def redacted_document(section: Section) -> dict[str, JsonValue]:
    """A section as JSON without the secrets of addresses.

    Leaves of the protocol, such as templates, are texts and stay as they are; the model may be an
    address.
    """
    document: dict[str, JsonValue] = section.model_dump(mode="json")
    for _, declared, holder, name in _walk(type(section), document):
        value = holder[name]
        # The name of a model may have an @ that means nothing here.
        is_address = isinstance(value, str) and "://" in value
        if is_address if declared.subject else declared.role is not Role.PROTOCOL:
            holder[name] = redact_values(value)
    return document


def shown(value: JsonValue, longest: int = 60) -> str:
    """Format a value for a message: one line of at most ``longest`` characters."""
    value = redact_values(value)
    text = "not set" if value is None else " ".join(json.dumps(value, ensure_ascii=False).split())
    return shorten_end(text, longest)


def _walk(
    section: type[Section], document: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, LeafRole, dict[str, Any], str]]:
    """Yield the leaves of a section's document: path, role, and the mapping and key to find it."""
    for name, info in section.model_fields.items():
        if declared := _declared(info):
            yield f"{prefix}{name}", declared, document, name
        elif nested := _section_of(info):
            kind, is_mapping = nested
            parts = document[name] if is_mapping else {"": document[name]}
            for key, part in parts.items():
                yield from _walk(
                    kind, part, f"{prefix}{name}.{key}." if key else f"{prefix}{name}."
                )


def _flat(path: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, part in value.items():
            # A key with a dot is quoted; otherwise two configurations could have the same paths.
            name = json.dumps(key, ensure_ascii=False) if "." in key else key
            yield from _flat(f"{path}.{name}", part)
    else:
        yield path, value


def _declared(info: FieldInfo) -> LeafRole | None:
    return next((mark for mark in info.metadata if isinstance(mark, LeafRole)), None)


def _section_of(info: FieldInfo) -> tuple[type[Section], bool] | None:
    """The section type of a field, and whether the field maps keys to it; None for a leaf."""
    kind: object = info.annotation
    is_mapping = get_origin(kind) is dict
    if is_mapping:
        kind = get_args(kind)[1]
    return (kind, is_mapping) if isinstance(kind, type) and issubclass(kind, Section) else None
