"""Generated reference tables are current, and name every variable that the code reads."""

import re
from pathlib import Path

from shared.config import Config
from shared.protocol import leaves
from tests.docs.markdown import ROOT
from tools import reference

_VARIABLE = re.compile(r"\bPLUMBLINE_[A-Z][A-Z_]*[A-Z]\b")
_INTERNAL = {"PLUMBLINE_REPLICA_TAG"}  # marks child processes, nobody sets it


def test_generated_blocks_are_current():
    assert reference.stale() == [], "run `make reference`"


def test_a_stale_block_is_found_and_rewritten(tmp_path: Path):
    for name in reference.DOCUMENTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), encoding="utf-8")
    changed = tmp_path / "docs" / "reference.md"
    current = changed.read_text("utf-8")
    changed.write_text(current.replace("| `PORT` |", "| `PROT` |"), encoding="utf-8")
    assert reference.stale(tmp_path) == ["docs/reference.md"]
    assert reference.render(changed.read_text("utf-8")) == current


def test_every_variable_of_the_code_is_documented():
    sources = [p for folder in ("services", "shared") for p in (ROOT / folder).rglob("*.py")]
    used = {name for path in sources for name in _VARIABLE.findall(path.read_text("utf-8"))}
    documented = set(_VARIABLE.findall((ROOT / "docs" / "reference.md").read_text("utf-8")))
    assert used - documented == _INTERNAL


def test_every_config_key_and_setting_is_described():
    bare = [leaf.path for leaf in leaves(Config) if not leaf.info.description]
    for service, settings in reference.SETTINGS.items():
        fields = settings.model_fields.items()
        bare += [f"{service}: {name}" for name, field in fields if not field.description]
    assert bare == [], "put a docstring below the field"
