"""Images are named by digest, the same everywhere, and their origin is on record."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

PINNED = re.compile(r"(?P<image>[a-z0-9][\w./-]*:[\w.-]+)@(?P<digest>sha256:[0-9a-f]{64})\b")
_REFERENCE = re.compile(
    r"^\s*(?:-\s+)?image: *(?P<image>\S+)|^FROM (?P<base>\S+)|^ARG \w+_IMAGE=(?P<default>\S+)",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
_OURS = re.compile(r"(localhost/)?plumbline/[a-z-]+(:.*)?")
# Stages of the same file, and the base image that an ARG above them names.
_WITHIN = {"base", "${PYTHON_IMAGE}", "${VLLM_IMAGE}"}


def files() -> Iterator[Path]:
    """Files that name images which something runs or builds upon."""
    yield ROOT / "docker-compose.yml"
    yield ROOT / "Makefile"
    yield from sorted((ROOT / "services").glob("*/Dockerfile*"))
    yield from sorted((ROOT / "k8s").rglob("*.yaml"))
    yield from sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def pinned() -> set[tuple[str, str]]:
    """Image with tag, and digest, of every pinned reference."""
    texts = (file.read_text(encoding="utf-8") for file in files())
    return {(m["image"], m["digest"]) for text in texts for m in PINNED.finditer(text)}


def references(file: Path) -> list[str]:
    """Images that a file names, with the defaults of variables."""
    matches = _REFERENCE.finditer(file.read_text(encoding="utf-8"))
    names = [match["image"] or match["base"] or match["default"] for match in matches]
    return [_VARIABLE.sub(r"\1", name) for name in names]


def foreign(image: str) -> bool:
    return not (_OURS.fullmatch(image) or image in _WITHIN or image.startswith("$"))


@pytest.mark.parametrize("file", list(files()), ids=lambda file: str(file.relative_to(ROOT)))
def test_every_image_has_a_digest(file: Path):
    images = [image for image in references(file) if foreign(image)]
    assert [image for image in images if not PINNED.fullmatch(image)] == []


def test_a_tag_has_one_digest():
    tags = [image for image, _ in pinned()]
    assert len(tags) == len(set(tags))


def test_the_origin_of_each_digest_is_on_record():
    table = (ROOT / "packaging" / "images" / "README.md").read_text(encoding="utf-8")
    recorded = {(m["image"], m["digest"]) for m in PINNED.finditer(table)}
    assert recorded == pinned()
