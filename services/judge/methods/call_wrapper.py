"""A program that calls one function of an answer with JSON arguments from standard input."""

from string import Template

# The modules whose names verl makes visible to the answer, in its order.
_STAR = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
    *("builtins", "typing"),
)
_PLAIN = _STAR[:-2]

_PROGRAM = Template(
    """\
import traceback
$imports

$answer

def _plumbline_call():
    lines = sys.stdin.read()
    try:
        arguments = [json.loads(line) for line in lines.split("\\n")] if lines.strip() else []
    except json.JSONDecodeError as error:
        sys.stderr.write(f"arguments are not JSON: {error}\\n")
        return
    try:
        function = None
        if $name in globals():
            function = globals()[$name]
        elif "Solution" in globals():
            function = getattr(globals()["Solution"](), $name)
        if not function:
            sys.stderr.write("no function or method " + $name + "\\n")
            return
        result = function(*arguments)
    except Exception:
        sys.stderr.write(traceback.format_exc())
        return
    as_json = isinstance(result, (dict, list, tuple, bool)) or result is None
    print(json.dumps(result) if as_json else str(result))

if __name__ == "__main__":
    _plumbline_call()
"""
)


def wrap_call(answer: str, fn_name: str) -> str:
    """Wrap an answer as verl 0.9.1 does for ``fn_name``: one JSON argument per line of input.

    The result is printed as JSON if it is a container, a truth value or ``None``, else as text. As
    with verl, an exception in the function prints no result and ends with exit code 0: the case is
    a wrong answer, not a runtime error.
    """
    imports = [f"from {module} import *" for module in _STAR]
    imports += [f"import {module}" for module in _PLAIN]
    return _PROGRAM.substitute(imports="\n".join(imports), answer=answer, name=repr(fn_name))
