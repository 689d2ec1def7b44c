"""Layout registry: readers of public data-set formats by name, which each module registers."""

import pkgutil
from importlib import import_module
from typing import Any

from services.data.layouts.base import LAYOUTS, Layout
from shared.errors import DataError

__all__ = ["get_layout"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def get_layout(name: str) -> Layout[Any]:
    """Look a layout up.

    Raises:
        DataError: The name is unknown; lists the known ones.
    """
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise DataError(f"{name!r} is not a layout that can be imported; choose one of {known}")
    return LAYOUTS[name]
