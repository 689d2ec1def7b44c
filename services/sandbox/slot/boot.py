# First message on the control socket, executed by the interpreter's -c: loads the modules that the
# second message names, one a message, and runs the init, which returns only in a case of an answer.
import builtins as _builtins
import os as _os
import sys as _sys
import types as _types
from importlib.machinery import SourceFileLoader as _Loader
from typing import Any as _Any


def _load() -> _Any:  # noqa: ANN401
    import json

    # An answer may replace built-ins: these modules have a copy of them.
    own = dict(vars(_builtins))
    first = json.loads(_os.read(3, 1 << 20))
    for name in first["modules"]:
        module = _types.ModuleType(name)
        module.__dict__["__builtins__"] = own
        module.__dict__["__loader__"] = _Loader(name, name + ".py")
        module.__dict__["_LEVELS"] = 2  # nested exec() calls below an answer
        _sys.modules[name] = module
        source = _os.read(3, 1 << 20)
        exec(compile(source, name + ".py", "exec", dont_inherit=True), module.__dict__)
    return _sys.modules["services.sandbox.slot.init"].main(3, first["settings"])


_program = _load()
try:
    exec(_program.code, _program.module.__dict__)
except BaseException as _error:
    _program.failure.append(_error)  # the only reference, so that it can be finalized
_program.end()
