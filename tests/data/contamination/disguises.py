"""Disguises of leaked statements and solutions, as they are found in training corpora."""

import ast
import html
import json
import re
import textwrap
from collections.abc import Callable

from services.data.tokens import BUILTINS, own_names

Disguise = Callable[[str], str]


def verbatim(text: str) -> str:
    return text


def indented(text: str) -> str:
    return textwrap.indent(text, " " * 8)


def tabs_and_crlf(text: str) -> str:
    lines = (
        re.sub(r"^((?:    )+)", lambda m: "\t" * (len(m[1]) // 4), one) for one in text.split("\n")
    )
    return "\r\n".join(f"{line}  " for line in lines)


def in_markdown(text: str) -> str:
    before = "## Exercise 12\n\nThe **next** task is from an interview, and most got it wrong.\n\n"
    return f"{before}```python\n{text}\n```\n\nTry it yourself before you read on."


def in_json(text: str) -> str:
    return json.dumps({"id": 7, "content": text})


def in_nested_json(text: str) -> str:
    return in_json(in_json(text))


def in_html(text: str) -> str:
    return f"<div><p>Task</p><pre><code>{html.escape(text)}</code></pre></div>"


def commented(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.split("\n"))


def other_case(text: str) -> str:
    return re.sub(r"[.,;!?]", lambda m: {".": " -", ",": ""}.get(m[0], "..."), text).upper()


def bullets(text: str) -> str:
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, 40) or [""]]
    return "\n".join(f"* {line}" for line in lines)


def numbered(text: str) -> str:
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, 60)]
    return "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, start=1))


def one_line(text: str) -> str:
    return " ".join(text.split())


_NAMES = re.compile(r"(?<![\w.])[^\W\d]\w*")


def renamed(text: str) -> str:
    """Rename what the code of a text defines, in its sentences and examples too."""
    new = {name: f"zq{at}" for at, name in enumerate(sorted(own_names(text) - BUILTINS))}
    return _NAMES.sub(lambda match: new.get(match[0], match[0]), text)


# Programs


def _parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except SyntaxError:
        return None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def reformatted(code: str) -> str:
    """As ``ast.unparse`` writes it, without comments and docstrings."""
    tree = _parsed(code)
    return ast.unparse(_without_docstrings(tree)) if tree else code


def documented(code: str) -> str:
    """With a docstring in each function and a comment after every other line."""
    tree = _parsed(code)
    if tree is None:
        return code
    for node in ast.walk(_without_docstrings(tree)):
        if isinstance(node, ast.FunctionDef):
            text = f"Compute {node.name} as it was asked for.\n\n    Any input is right.\n    "
            node.body.insert(0, ast.Expr(ast.Constant(text)))
    lines = ast.unparse(tree).split("\n")
    quoted = False
    for at, line in enumerate(lines):
        if '"""' in line:
            quoted = line.count('"""') == 1 and not quoted
        elif at % 2 and line.strip() and not quoted:
            lines[at] = f"{line}  # step {at}, see the notes above"
    return "\n".join(lines)


def annotated_in_class(code: str) -> str:
    """As methods of a class with annotated parameters."""
    tree = _parsed(code)
    if tree is None:
        return f"class Solution:\n{textwrap.indent(code, '    ')}"
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for number, argument in enumerate(node.args.args):
            argument.annotation = (
                ast.parse(("int", "List[int]", "Optional[str]")[number % 3]).body[0].value
            )
        node.args.args.insert(0, ast.arg("self"))
        node.returns = ast.Name("int")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in functions
        ):
            node.func = ast.Attribute(ast.Name("self"), node.func.id)
    body = textwrap.indent(ast.unparse(tree), "    ")
    return f"from typing import List, Optional\n\n\nclass Solution:\n{body}"


STATEMENTS: dict[str, Disguise] = {
    "verbatim": verbatim,
    "indented": indented,
    "tabs, CRLF": tabs_and_crlf,
    "renamed": renamed,
    "comment": commented,
    "Markdown": in_markdown,
    "JSON": in_json,
    "nested JSON": in_nested_json,
    "HTML": in_html,
    "case, punctuation": other_case,
    "bullets": bullets,
    "numbered, one line": lambda text: numbered(text) if len(text) % 2 else one_line(text),
}
SOLUTIONS: dict[str, Disguise] = {
    "verbatim": verbatim,
    "indented": indented,
    "tabs, CRLF": tabs_and_crlf,
    "renamed": renamed,
    "reformatted": reformatted,
    "Markdown": in_markdown,
    "JSON": in_json,
    "nested JSON": in_nested_json,
    "HTML": in_html,
    "documented": documented,
    "annotated in a class": annotated_in_class,
    "renamed, reformatted": lambda code: reformatted(renamed(code)),
}
