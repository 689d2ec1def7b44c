"""Source texts that travel with a call to run in the sandbox."""

import base64
import marshal
from functools import cache

from shared.harness.confinement import AUDIT_ARCHITECTURES, COMMON, LOCAL_SOCKETS, compile_filter
from shared.harness.sources import harness_sources, module_source

# The oldest format of marshal that all versions read.
_ANY_VERSION = 2


def source(name: str) -> str:
    """Return the source text of one of this package's modules."""
    return module_source(__package__, name)


@cache
def harness_files(*, functions: bool = False) -> dict[str, str]:
    """Return the files of the harness, which ``boot.py`` loads, in base64.

    They are its modules' sources, and a filter of system calls for each kind of machine.

    Args:
        functions: Whether the call is one of function tests.
    """
    parts = {"harness": marshal.dumps(harness_sources(functions=functions), _ANY_VERSION)}
    for machine in AUDIT_ARCHITECTURES:
        parts[f"filter-{machine}"] = compile_filter(COMMON, LOCAL_SOCKETS, machine=machine)
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}
