"""README.md and README.zh-CN.md have the same structure, code and links."""

from itertools import zip_longest

from tests.docs.markdown import ROOT, Section, sections

ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
_MISSING = Section(0, "(no heading)")


def differences(english: str, chinese: str) -> list[str]:
    """Differences that are independent of the language, section by section."""
    pairs = zip_longest(sections(english), sections(chinese), fillvalue=_MISSING)
    return [difference for ours, theirs in pairs for difference in _of_section(ours, theirs)]


def _of_section(ours: Section, theirs: Section) -> list[str]:
    compared = {
        "level of the heading": (ours.level, theirs.level),
        "code blocks": (ours.code, theirs.code),
        "`code` in the text": (sorted(ours.spans), sorted(theirs.spans)),
        "links": (_links(ours), _links(theirs)),
        "rows of tables": (ours.table_rows, theirs.table_rows),
    }
    return [
        f"{ours.title!r} / {theirs.title!r}: {what}: {a} / {b}"
        for what, (a, b) in compared.items()
        if a != b
    ]


def _links(section: Section) -> list[str]:
    return sorted(link for link in section.links if link not in (ENGLISH, CHINESE))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_both_have_the_same_content():
    """Compare the READMEs; each difference names the section in both languages.

    To fix one, give README.zh-CN.md the same headings in the same order, the same code blocks
    including comments, the same inline `code` and links, and the same number of table rows. The
    order of words is free.
    """
    assert differences(read(ENGLISH), read(CHINESE)) == []


def test_each_links_to_the_other():
    assert CHINESE in sections(read(ENGLISH))[1].links
    assert ENGLISH in sections(read(CHINESE))[1].links
