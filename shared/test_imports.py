"""Imports of tests, tried in the sandbox's interpreter before any answer is judged.

A test whose import fails says nothing of an answer.
"""

import json
from collections.abc import Iterable, Mapping

_PROGRAM = """\
import json
found = {{}}
for statement in {statements}:
    try:
        exec(statement, {{}})
    except BaseException as error:
        found[statement] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(found))
"""
# A program whose imports exceed it is the sandbox's failure.
IMPORT_SECONDS = 60.0


def import_program(statements: Iterable[str]) -> str:
    """Return a Python program that tries imports and prints which ones fail."""
    return _PROGRAM.format(statements=ascii(list(statements)))


def failed_imports(stdout: bytes) -> Mapping[str, str] | None:
    """Return the reasons that the program printed, by statement; None if it printed none."""
    try:
        found = json.loads(stdout.strip().rpartition(b"\n")[2])
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return {str(statement): str(reason) for statement, reason in found.items()}
