"""Programs that go into the sandbox with an answer. They run there, not here."""

import base64
import marshal
from functools import cache
from importlib.resources import files
from importlib.util import MAGIC_NUMBER


@cache
def source(name: str) -> str:
    """The text of one of this package's modules."""
    return files(__package__).joinpath(f"{name}.py").read_text(encoding="utf-8")


@cache
def harness_files() -> dict[str, str]:
    """The harness of cases as ``boot.py`` wants it: its text, and bytecode of our own version."""
    text = source("cases")
    code = compile(text, "harness.py", "exec", dont_inherit=True, optimize=0)
    parts = {"harness.py": text.encode(), "harness.bin": MAGIC_NUMBER + marshal.dumps(code)}
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}
