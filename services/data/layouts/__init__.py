"""Layout registry: the readers of public data-set formats, by name."""

from typing import Any

from services.data.layouts import contests, functions, livecodebench, others
from services.data.layouts.base import LAYOUTS, Layout
from shared.errors import DataError

__all__ = ["get_layout"]
_MODULES = (contests, functions, livecodebench, others)


def get_layout(name: str) -> Layout[Any]:
    """Look a layout up.

    Raises:
        DataError: The name is unknown; lists the known ones.
    """
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise DataError(f"{name!r} is not a layout that can be imported; choose one of {known}")
    return LAYOUTS[name]
