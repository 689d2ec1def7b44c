"""Links and make targets that the documents name exist."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, sections

DOCUMENTS = sorted(
    [
        *ROOT.glob("README*.md"),
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *ROOT.glob("docs/*.md"),
        ROOT / "k8s" / "README.md",
        ROOT / "demo" / "README.md",
        ROOT / "packaging" / "images" / "README.md",
    ]
)
_MAKE = re.compile(r"(?:^|[\s;&])make ([a-z][a-z0-9-]*)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_TARGET = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)


def broken_links(markdown: str, folder: Path) -> list[str]:
    """Relative links without a target, including headings of Markdown files."""
    links = {link for section in sections(markdown) for link in section.links}
    return sorted(
        link for link in links if "://" not in link and not _resolves(link, markdown, folder)
    )


def _resolves(link: str, markdown: str, folder: Path) -> bool:
    name, _, anchor = link.partition("#")
    target = folder / name
    if name and not target.exists():
        return False
    if not anchor:
        return True
    text = target.read_text(encoding="utf-8") if name else markdown
    return anchor in {section.slug for section in sections(text)}


def make_targets(markdown: str) -> set[str]:
    """Make targets called in code blocks and inline code."""
    code = [c for section in sections(markdown) for c in (*section.code, *section.spans)]
    bare = "\n".join(_COMMENT.sub("", line) for c in code for line in c.splitlines())
    return set(_MAKE.findall(bare))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path):
    assert broken_links(document.read_text(encoding="utf-8"), document.parent) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_exist(document: Path):
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    assert make_targets(document.read_text(encoding="utf-8")) - targets == set()
