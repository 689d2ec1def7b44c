# Special judge driver: judges one case per process; runs in the sandbox as the harness's program.
#
# The judge defines ``_STYLE`` and ``_CHECKER`` before it: the source of a Python checker, or a
# compiled one (zlib, base64). Standard input is one case as JSON. The exit code is the result, with
# testlib's codes and those below; it counts if ``!`` was printed. Standard error is the comment.
import base64 as _base64
import json as _json
import os as _os
import sys as _sys
import types as _types
import typing as _typing
import zlib as _zlib

_STYLE: str
_CHECKER: str
_NOT_COMPILED, _CRASHED = 40, 41
_FILES = {"input": "input.txt", "output": "output.txt", "expected": "answer.txt"}


def _write_files(case: "dict[str, str]") -> None:
    for name, path in _FILES.items():
        with open(path, "wb") as file:
            file.write(case[name].encode("utf-8", "surrogatepass"))


def _exit(channel: int, code: int, error: "BaseException | None" = None) -> _typing.NoReturn:
    if error is not None:
        text = "%s: %s" % (type(error).__name__, error)
        _sys.stderr.write(text[:1000] + "\n")
    _sys.stderr.flush()
    _os.write(channel, b"!")
    _os._exit(code)


def _load(code: _types.CodeType, name: str) -> "dict[str, _typing.Any]":
    module = _types.ModuleType(name)
    _sys.modules[name] = module
    exec(code, module.__dict__)
    return module.__dict__


def _run_function(channel: int, case: "dict[str, str]", code: _types.CodeType) -> None:
    try:
        check = _load(code, "checker")["check"]
    except BaseException as error:
        _exit(channel, _NOT_COMPILED, error)
    try:
        passed = check(**case)
        if isinstance(passed, (str, tuple, list, dict)):  # such as ``(False, "message")``
            raise TypeError("check must return true or false, not %r" % (passed,))
        _exit(channel, 0 if passed else 1)
    except Exception as error:
        # The judge asks about the expected output too: if that raises as well, the checker is at
        # fault; otherwise the output is malformed.
        _exit(channel, 1, error)
    except BaseException as error:
        _exit(channel, _CRASHED, error)


def _run_script(channel: int, case: "dict[str, str]", code: _types.CodeType) -> None:
    _write_files(case)
    _sys.argv = ["checker", *_FILES.values()]
    try:
        _load(code, "__main__")
        _exit(channel, 0)
    except SystemExit as stopped:
        if stopped.code is None or isinstance(stopped.code, int):
            _exit(channel, stopped.code or 0)
        _exit(channel, 1, stopped)
    except Exception as error:
        _exit(channel, 1, error)
    except BaseException as error:
        _exit(channel, _CRASHED, error)


def _run_binary(channel: int, case: "dict[str, str]") -> None:
    _write_files(case)
    # Created executable, because a sandbox may refuse to change modes.
    program = _os.open("checker", _os.O_WRONLY | _os.O_CREAT | _os.O_EXCL, 0o700)
    data = _zlib.decompress(_base64.b64decode(_CHECKER))
    while data:
        data = data[_os.write(program, data) :]
    _os.close(program)
    _os.set_inheritable(channel, True)
    # The checker says that it was loaded (``checker_start.cpp``): the exit code of a loader that
    # fails would look like one of its own.
    environment = {**_os.environ, "CHECKER_STARTED_FD": str(channel)}
    _os.execve("./checker", ["./checker", *_FILES.values()], environment)


if __name__ == "__main__":
    _case = _json.loads(_sys.stdin.buffer.read())
    _channel = _os.dup(1)
    _os.dup2(_os.open(_os.devnull, _os.O_RDWR), 0)
    _os.dup2(0, 1)
    if _STYLE == "binary":
        _run_binary(_channel, _case)
    try:
        _code = compile(_CHECKER, "checker.py", "exec", dont_inherit=True)
    except Exception as _error:
        _exit(_channel, _NOT_COMPILED, _error)
    {"function": _run_function, "script": _run_script}[_STYLE](_channel, _case, _code)
