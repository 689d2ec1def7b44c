"""Replacements of what ``multiprocessing`` finds in ``/dev/shm``, for slots without it.

Every interpreter whose path has this folder imports this file at its start.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class HeapLoader(SourceFileLoader):
    """Loads ``multiprocessing.heap``, which then makes its files in the temporary folder."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.Arena._dir_candidates = []


class Replacements:
    """Finds modules beside this file before those that are built into the interpreter."""

    names = frozenset(("_multiprocessing", "_posixshmem"))

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in cls.names:
            return PathFinder.find_spec(name, [_FOLDER])
        if name != "multiprocessing.heap":
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = HeapLoader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, Replacements)
