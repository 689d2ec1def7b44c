# Follows the text of a problem's own checker, which defines ``check``; runs in the sandbox.
import json as _json
import os as _os
import sys as _sys

if __name__ == "__main__":
    _sys.stdout = open(_os.devnull, "w")
    _cases = _json.loads(_sys.stdin.read())
    _check = globals()["check"]
    _marks = "".join("1" if _check(**_case) else "0" for _case in _cases)
    with open("verdicts", "w") as _file:
        _file.write(_marks)
