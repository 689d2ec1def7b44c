"""Modules that an answer finds loaded, and those that are hidden from it.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterator

# Modules loaded once in the zygote if the answer imports them at its top; loading them must have no
# visible effect.
PRELOADED = frozenset((
    "abc", "array", "bisect", "calendar", "cmath", "collections", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq",
    "io", "itertools", "json", "math", "numbers", "numpy", "operator", "os", "queue", "random",
    "re", "statistics", "string", "struct", "sys", "textwrap", "threading", "time", "types",
    "typing",
))  # fmt: skip
IMPORTS = ([b"import"], [b"from"])
# Packages of this project, of which no program may find a module.
OWN_PACKAGES = ("services", "shared")
# Modules of the standard library that a slot's init has loaded for itself.
INIT_MODULES = frozenset(("ctypes", "dis", "inspect", "json", "selectors", "socket"))

# Modules that are hidden from the program; to free them would take longer.
HIDDEN: list[object] = []


def imported(source: bytes) -> Iterator[str]:
    """Yield the preloadable modules that a program imports at its top."""
    for line in source.decode("utf-8", "replace").splitlines():
        words = line.replace(",", " ").split()
        if line.startswith("from ") and len(words) > 1:
            names = words[1:2]
        elif line.startswith("import "):
            names = words[1:]
        else:
            continue
        for name in names:
            if name.rstrip(";") in PRELOADED:
                yield name.rstrip(";")


def hide_modules(source: bytes) -> None:
    """Hide this project's modules, and those of the init that the program does not import."""
    lines = source.splitlines()
    imports = b"\n".join(line for line in lines if line.split(None, 1)[:1] in IMPORTS)
    for name in list(sys.modules):
        top = name.partition(".")[0]
        unwanted = top in INIT_MODULES and top.encode() not in imports
        if unwanted or top in OWN_PACKAGES:
            HIDDEN.append(sys.modules.pop(name))
