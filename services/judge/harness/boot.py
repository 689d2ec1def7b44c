# Loader of the harness: compiles its modules and runs them. Only a case returns from the harness.
from __future__ import annotations

import builtins as _builtins
import marshal as _marshal
import os as _os
import sys as _sys
import types as _types

# Used after the answer ran, because it may replace the built-ins.
from builtins import BaseException as _BaseException


def _load(folder: str) -> None:
    with open(folder + "/harness", "rb") as file:
        texts = _marshal.loads(file.read())
    # An answer may replace built-ins: these modules have a copy of them.
    own = dict(vars(_builtins))
    for name, text in texts.items():
        module = _sys.modules[name] = _types.ModuleType(name)
        module.__dict__["__builtins__"] = own
        module.__dict__["__loader__"] = globals()["__loader__"]
        exec(compile(text, name + ".py", "exec", dont_inherit=True), module.__dict__)


_folder = _os.path.dirname(_os.path.abspath(__file__))
_load(_folder)
_program = _sys.modules["shared.harness.cases.entry"].start(_folder)
try:
    exec(_program.code, _program.module.__dict__)
except _BaseException as _error:
    _program.failure.append(_error)  # the only reference, so that it can be finalized
_program.end()
