"""Messages quoted in docs/troubleshooting.md exist in the code."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

from tests.docs.markdown import ROOT

GAP = "…"
QUOTED = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"


def quoted(markdown: str) -> list[str]:
    return [line for block in QUOTED.findall(markdown) for line in block.splitlines()]


@cache
def templates() -> tuple[str, ...]:
    """All strings of the code, with gaps for interpolated values, the compose file and Redis'."""
    texts = [(ROOT / path).read_text() for path in ("docker-compose.yml", "configs/redis/start.sh")]
    for folder in ("services", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts += _strings(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(texts)


def _strings(tree: ast.AST) -> Iterator[str]:
    names = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(_part(part, names) for part in node.values)


def _part(part: ast.expr, names: Mapping[str, object]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
        return str(names.get(part.value.id, GAP))
    return GAP


def is_in_the_code(message: str) -> bool:
    """True if one string contains all parts of the message in order."""
    parts = message.split(GAP)
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    longest = max(parts, key=len)
    return any(longest in template and pattern.search(template) for template in templates())


def test_the_messages_are_in_the_code():
    messages = quoted(TROUBLESHOOTING.read_text(encoding="utf-8"))
    assert messages
    foreign = [message for message in messages if not is_in_the_code(message)]
    assert foreign == [], "quote messages of the code; … stands for interpolated values"
