"""Source texts that travel with a call to run in the sandbox."""

import base64
import marshal
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER


@cache
def source(name: str) -> str:
    """Return the source text of one of this package's modules."""
    return files(__package__).joinpath(f"{name}.py").read_text(encoding="utf-8")


@cache
def harness_source() -> str:
    """Return the source text of the case runner, ``shared.harness.cases``."""
    return files("shared.harness").joinpath("cases.py").read_text(encoding="utf-8")


@cache
def harness_files() -> dict[str, str]:
    """Return the files that ``boot.py`` loads: source, and bytecode of this Python version."""
    text = harness_source()
    code = compile(text, "harness.py", "exec", dont_inherit=True, optimize=0)
    parts = {"harness.py": text.encode(), "harness.bin": MAGIC_NUMBER + marshal.dumps(code)}
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}
