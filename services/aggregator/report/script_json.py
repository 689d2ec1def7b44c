"""JSON that is safe inside a script element."""

import json
from collections.abc import Iterator

from shared.errors import OutputError
from shared.schemas import without_surrogates

_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def compact(value: object) -> str:
    """Encode JSON that is safe in a script element: no ``<``, ``>``, ``&`` or line separators."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise OutputError(f"the report cannot be written: {error}") from None
    return without_surrogates(text).translate(_ESCAPES)


def by_dataset(parts: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Join parts, grouped by data set, into a JSON object of arrays."""
    current: str | None = None
    for dataset, part in parts:
        if dataset == current:
            yield f",{part}"
        else:
            yield f"{'{' if current is None else '],'}{compact(dataset)}:[{part}"
            current = dataset
    yield "{}" if current is None else "]}"
