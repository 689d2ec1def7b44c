"""Measurement protocol: the role of every configuration leaf, fingerprints and differences.

The role is part of the field's type, so the run's identity, the checks of ``plumb
compare``, and the reference tables in the documents are derived from one declaration.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self, TypeGuard, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import FieldInfo

from shared.redaction import redact_address, redact_values
from shared.text import shorten_end

T = TypeVar("T")


class Role(StrEnum):
    """The effect of a change of a leaf on a run, and on a comparison of runs."""

    PROTOCOL = "protocol"
    """The run becomes another measurement, so a run is not resumed with the change."""
    SUBJECT = "subject"
    """As ``PROTOCOL``, but compared runs are expected to differ in it: the model, or a seed."""
    OPERATION = "operation"
    """Two sessions of one run may differ in it."""
    NUMERICS = "numerics"
    """As ``OPERATION``, but it can change low bits of greedy decoding; a comparison lists it."""
    RECORDED = "recorded"
    """A label or an output."""

    @property
    def identifies(self) -> bool:
        """Whether the leaf is part of the identity of the measurement."""
        return self in (Role.PROTOCOL, Role.SUBJECT)


InProtocol = Annotated[T, Role.PROTOCOL]
Subject = Annotated[T, Role.SUBJECT]
Operation = Annotated[T, Role.OPERATION]
Numerics = Annotated[T, Role.NUMERICS]
Recorded = Annotated[T, Role.RECORDED]


class Section(BaseModel):
    """A part of the configuration. Each field is a section, a mapping of sections, or has a role.

    Raises:
        TypeError: A subclass has a field that is none of these.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - pydantic's signature
        super().__pydantic_init_subclass__(**kwargs)
        for name, info in cls.model_fields.items():
            if _role(info) is None and _section_of(info) is None:
                raise TypeError(
                    f"{cls.__name__}.{name}: a configuration leaf without a role; annotate it with "
                    "InProtocol, Subject, Operation, Numerics or Recorded (shared.protocol)"
                )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf as declared; ``*`` in ``path`` stands for the keys of a mapping of sections."""

    path: str
    role: Role
    info: FieldInfo


def leaves(section: type[Section], prefix: str = "") -> Iterator[Leaf]:
    """Yield all leaves below a section in the order of their definition."""
    for name, info in section.model_fields.items():
        path = f"{prefix}{name}"
        if role := _role(info):
            yield Leaf(path, role, info)
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
        leaves = values(section, lambda role: role.identifies)
        for path, value in values(section, lambda role: role is Role.SUBJECT).items():
            leaves[path] = redact_address(value) if _is_address(value) else value
        return cls(leaves=leaves)

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


def values(section: Section, wanted: Callable[[Role], bool]) -> dict[str, JsonValue]:
    """The values of the wanted leaves as JSON, by path; mappings are flattened, None is omitted."""
    return {
        path: value
        for place, role, holder, name in _walk(type(section), section.model_dump(mode="json"))
        if wanted(role) and holder[name] is not None
        for path, value in _flat(place, holder[name])
    }


def redacted_document(section: Section) -> dict[str, JsonValue]:
    """A section as JSON without the secrets of addresses.

    Leaves of the protocol, such as templates, are texts and stay as they are; the model may be an
    address.
    """
    document: dict[str, JsonValue] = section.model_dump(mode="json")
    for _, role, holder, name in _walk(type(section), document):
        value = holder[name]
        # The name of a model may have an @ that means nothing here.
        if _is_address(value) if role is Role.SUBJECT else role is not Role.PROTOCOL:
            holder[name] = redact_values(value)
    return document


def shown(value: JsonValue, longest: int = 60) -> str:
    """Format a value for a message: one line of at most ``longest`` characters."""
    value = redact_values(value)
    text = "not set" if value is None else " ".join(json.dumps(value, ensure_ascii=False).split())
    return shorten_end(text, longest)


def _is_address(value: JsonValue) -> TypeGuard[str]:
    return isinstance(value, str) and "://" in value


def _walk(
    section: type[Section], document: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Role, dict[str, Any], str]]:
    """Yield the leaves of a section's document: path, role, and the mapping and key to find it."""
    for name, info in section.model_fields.items():
        if role := _role(info):
            yield f"{prefix}{name}", role, document, name
        elif nested := _section_of(info):
            kind, is_mapping = nested
            parts = document[name] if is_mapping else {None: document[name]}
            for key, part in parts.items():
                place = name if key is None else f"{name}.{key}"
                yield from _walk(kind, part, f"{prefix}{place}.")


def _flat(path: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, part in value.items():
            # A key with a dot is quoted; otherwise two configurations could have the same paths.
            name = json.dumps(key, ensure_ascii=False) if "." in key else key
            yield from _flat(f"{path}.{name}", part)
    else:
        yield path, value


def _role(info: FieldInfo) -> Role | None:
    return next((mark for mark in info.metadata if isinstance(mark, Role)), None)


def _section_of(info: FieldInfo) -> tuple[type[Section], bool] | None:
    """The section type of a field, and whether the field maps keys to it; None for a leaf."""
    kind: object = info.annotation
    is_mapping = get_origin(kind) is dict
    if is_mapping:
        kind = get_args(kind)[1]
    return (kind, is_mapping) if isinstance(kind, type) and issubclass(kind, Section) else None
