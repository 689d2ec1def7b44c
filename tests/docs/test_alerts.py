"""Each alert has a section in docs/alerts.md, and what the sections name exists."""

import re

import pytest
import yaml

from services.cli.commands import COMMANDS
from tests.docs.markdown import ROOT, Section, sections

DOCUMENT = ROOT / "docs" / "alerts.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
_PARTS = ("**Look at**", "**What to do.**", "**Harmless**")
_GREP = re.compile(r"\| grep (?:-\w+ )*'([^']*)'")
_COMMAND = re.compile(r"(?:\brun --rm runner|`plumb) ([a-z][a-z-]*)")


def alerts() -> dict[str, str]:
    """The section that each alert names."""
    rules = yaml.safe_load((ROOT / "configs" / "prometheus" / "rules.yml").read_text())
    named = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    return {rule["alert"]: rule["annotations"].get("runbook", "") for rule in named}


def described() -> list[Section]:
    return [section for section in sections(TEXT) if section.level == 2]


def log_lines() -> set[str]:
    """Messages that are looked for in logs, which have a blank."""
    parts = (part for pattern in _GREP.findall(TEXT) for part in re.split(r"[|()]", pattern))
    return {text for text in (part.strip('"') for part in parts) if " " in text}


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    titles = [section.title for section in described()]
    assert titles == list(dict.fromkeys(titles))
    assert set(titles) == alerts().keys()


def test_each_alert_names_its_section() -> None:
    slugs = {section.title: f"docs/alerts.md#{section.slug}" for section in described()}
    assert alerts() == slugs


@pytest.mark.parametrize("section", described(), ids=lambda section: section.title)
def test_a_section_says_what_to_look_at_and_to_do(section: Section) -> None:
    meaning, *parts = re.split(r"(?=\*\*(?:Look at|What to do\.|Harmless)\*\*)", section.text)
    assert meaning.strip()
    assert [part[: len(begin)] for part, begin in zip(parts, _PARTS, strict=True)] == list(_PARTS)
    assert section.code[0].startswith("promql\n")


def test_the_log_lines_are_logged() -> None:
    sources = [*ROOT.glob("services/**/*.py"), *ROOT.glob("shared/**/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert len(log_lines()) > 10
    assert {line for line in log_lines() if f'"{line}' not in text} == set()


def test_the_commands_of_plumb_exist() -> None:
    named = set(_COMMAND.findall(TEXT))
    assert len(named) > 3
    assert named <= {*COMMANDS, "data"}
