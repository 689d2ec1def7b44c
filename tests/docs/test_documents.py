"""Links, make targets, files and folders that the documents name exist."""

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
_PATH = re.compile(r"[\w/]+(?:\.py|/)")
_FOLDERS = (
    *("clients", "configs", "demo", "docs", "k8s", "packaging", "plumbline"),
    *("services", "shared", "tests", "tools"),
)


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


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_and_folders_of_the_code_exist(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    spans = {span for section in sections(text) for span in section.spans}
    named = {span.removesuffix("/") for span in spans if _PATH.fullmatch(span)}
    folders = [ROOT / folder for folder in _FOLDERS]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    ends = {"/".join(path.parts[place:]) for path in paths for place in range(len(path.parts))}
    assert len(named) > 10
    assert named - ends == set()
