"""Source code as tokens that do not depend on what its author called things."""

import re

from services.data.overlap.names import BUILTINS

# Strings are cut at a length, so that no text makes the search for their ends take long.
_TOKEN = re.compile(
    r"""
    (?P<skip> \#[^\n]* | \"{3}.*?\"{3} | '{3}.*?'{3} )
    | (?P<string> "(?:\\.|[^"\\\n]){0,200}+" | '(?:\\.|[^'\\\n]){0,200}+' )
    | (?P<number> \d[\w.]* )
    | (?P<attribute> \.[^\W\d]\w* )
    | (?P<name> [^\W\d]\w* )
    | (?P<sign> [^\s\w] )
    """,
    re.VERBOSE | re.DOTALL,
)


def code_tokens(code: str, reach: int) -> list[bytes]:
    """Split code of any language into tokens; comments and docstrings are left out.

    A name stands as its distance, in tokens, from where it stood before (0 where that is ``reach``
    tokens away or more), so it matters neither what it is called nor what code has been put in
    front. Python's keywords and builtins, attributes and literals stay.
    """
    tokens: list[bytes] = []
    last: dict[str, int] = {}
    for found in _TOKEN.finditer(code):
        token = found[0]
        if found.lastgroup == "skip":
            continue
        if found.lastgroup == "name" and token not in BUILTINS:
            distance = len(tokens) - last.get(token, -reach)
            last[token] = len(tokens)
            token = f"@{distance if distance < reach else 0}"
        tokens.append(token.encode("utf-8", "surrogatepass"))
    return tokens
