# Program of a slot's interpreter: loads the modules in its standard input, and runs the init with
# the control socket 3. It returns only in a case of an answer.
import builtins as _builtins
import sys as _sys
import types as _types
from importlib.machinery import SourceFileLoader as _Loader
from typing import Any as _Any


def _load() -> _Any:  # noqa: ANN401
    import json

    # An answer may replace built-ins: these modules have a copy of them.
    own = dict(vars(_builtins))
    with open(0, "rb", closefd=False) as file:
        program = json.loads(file.read())
    for name, source in program["modules"].items():
        module = _types.ModuleType(name)
        module.__dict__["__builtins__"] = own
        module.__dict__["__loader__"] = _Loader(name, name + ".py")
        _sys.modules[name] = module
        exec(compile(source, name + ".py", "exec", dont_inherit=True), module.__dict__)
    return _sys.modules["services.sandbox.slot.init"].main(3, program["settings"])


_program = _load()
try:
    exec(_program.code, _program.module.__dict__)
except BaseException as _error:
    _program.failure.append(_error)  # the only reference, so that it can be finalized
_program.end()
