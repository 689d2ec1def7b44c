"""The engines' own metrics under one roof, told apart by a label ``replica``."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+(?:[ \t]+-?\d+)?)[ \t]*")
_LABEL = r'[a-zA-Z_]\w*[ \t]*=[ \t]*"(?:[^"\\]|\\.)*"'
_LABELS = re.compile(rf"[ \t]*(?:{_LABEL}[ \t]*(?:,[ \t]*|$))*")
_OWN_LABEL = re.compile(rf"(replica)(?=[ \t]*=)|{_LABEL}")
_COUNTED = ("generation_tokens_total", "prompt_tokens_total")


@dataclass(slots=True)
class _Family:
    comments: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)


def merge(texts: Mapping[str, str]) -> str:
    """Put texts in Prometheus' format together, by replica; lines that are not in it are left out.

    The samples of a metric stand together, as the format wants it, with the first engine's
    ``HELP`` and ``TYPE``. A label ``replica`` of the engine's own becomes ``exported_replica``.
    """
    families: dict[str, _Family] = {}
    for replica, text in texts.items():
        _read(text, replica, families)
    return "".join(_written(family) for family in families.values() if family.samples)


def tokens_counted(text: str) -> float | None:
    """Tokens that an engine (vLLM, SGLang) has read and written; None if it does not count."""
    values = [
        number
        for match in _samples(text)
        if match[1].endswith(_COUNTED) and (number := _number(match[3])) is not None
    ]
    return sum(values) if values else None


def _read(text: str, replica: str, families: dict[str, _Family]) -> None:
    current = ""
    for line in text.splitlines():
        if line.startswith("#"):
            parts = line.split(maxsplit=3)
            if len(parts) >= 3 and parts[1] in ("HELP", "TYPE"):
                current = parts[2]
                families.setdefault(current, _Family()).comments.setdefault(parts[1], line)
        elif sample := _labelled(line, replica):
            name = sample[: sample.index("{")]
            family = current if current and name.startswith(current) else name
            families.setdefault(family, _Family()).samples.append(sample)


def _labelled(line: str, replica: str) -> str | None:
    match = _SAMPLE.fullmatch(line)
    if match is None or _number(match[3]) is None:
        return None
    labels = (match[2] or "").strip().rstrip(",")
    if not _LABELS.fullmatch(labels):
        return None
    if "replica" in labels:
        labels = _OWN_LABEL.sub(_renamed, labels)
    return f'{match[1]}{{replica="{replica}"{"," if labels else ""}{labels}}} {match[3]}'


def _renamed(match: re.Match[str]) -> str:
    return "exported_replica" if match[1] else match[0]


def _samples(text: str) -> Iterator[re.Match[str]]:
    matches = (_SAMPLE.fullmatch(line) for line in text.splitlines())
    return (match for match in matches if match)


def _number(value: str) -> float | None:
    try:
        return float(value.split()[0])
    except ValueError:
        return None


def _written(family: _Family) -> str:
    lines = [*family.comments.values(), *family.samples]
    return "".join(f"{line}\n" for line in lines)
