"""What images install is decided by hashes: no package is built with what pip fetches for it."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

FOLDER = ROOT / "packaging" / "images"
DOCKERFILES = sorted(ROOT.glob("services/*/Dockerfile*"))
_PIP = re.compile(r"-m pip .*?\b(?:install|wheel)\b(?:.*\\\n)*.*")
# A build without a network, with what is there, of wheels only; or of the build backend itself.
_DECIDED = re.compile(r"--no-index|--no-build-isolation|--only-binary :all:|-r \S*build\.lock")


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_built_with_what_pip_fetches(file: Path) -> None:
    text = file.read_text("utf-8")
    assert [call for call in _PIP.findall(text) if not _DECIDED.search(call)] == []
    assert "pip-install.sh /src/" in text or "--require-hashes" in text
