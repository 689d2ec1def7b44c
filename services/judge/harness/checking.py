# Special judge driver: appended to the problem's own ``check``; runs in the sandbox.
import json as _json
import os as _os
import sys as _sys

if __name__ == "__main__":
    _sys.stdout = open(_os.devnull, "w")
    _cases = _json.loads(_sys.stdin.read())
    _check = globals()["check"]
    _marks = ""
    for _case in _cases:
        try:
            _passed = _check(**_case)
        except Exception:
            # This raises too if the checker itself is broken; otherwise the output is malformed.
            _check(**{**_case, "output": _case["expected"]})
            _passed = False
        _marks += "1" if _passed else "0"
    with open("verdicts", "w") as _file:
        _file.write(_marks)
