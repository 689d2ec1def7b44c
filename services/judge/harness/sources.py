"""Source texts that travel with a call to run in the sandbox."""

import base64
import marshal
from functools import cache
from importlib.util import MAGIC_NUMBER

from shared.harness.confinement import AUDIT_ARCHITECTURES, COMMON, LOCAL_SOCKETS, compile_filter
from shared.harness.sources import function_sources, harness_source, module_source


def source(name: str) -> str:
    """Return the source text of one of this package's modules."""
    return module_source(__package__, name)


@cache
def harness_files() -> dict[str, str]:
    """Return the files of the harness, which ``boot.py`` loads.

    They are its source, its bytecode for this Python version, and a filter of system calls for each
    kind of machine.
    """
    text = harness_source()
    code = compile(text, "harness.py", "exec", dont_inherit=True, optimize=0)
    parts = {"harness.py": text.encode(), "harness.bin": MAGIC_NUMBER + marshal.dumps(code)}
    for machine in AUDIT_ARCHITECTURES:
        parts[f"filter-{machine}"] = compile_filter(COMMON, LOCAL_SOCKETS, machine=machine)
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


@cache
def function_files() -> dict[str, str]:
    """Return the files that the harness loads for function tests: sources, and their bytecode."""
    texts = function_sources()
    codes = {
        name: compile(text, f"{name}.py", "exec", dont_inherit=True, optimize=0)
        for name, text in texts.items()
    }
    parts = {f"{name}.py": text.encode() for name, text in texts.items()}
    parts["functions.bin"] = MAGIC_NUMBER + marshal.dumps(codes)
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}
