import pytest

from services.data.overlap.pairs import Overlap, OverlapKind, load_allowlist, review
from shared.errors import DataError
from tests.data.overlap.support import problem

YAML = """\
- a: humaneval/HumanEval/56
  b: humaneval/HumanEval/61
  reason: the same question about other brackets
- {b: "codecontests/1582_F1. Easy version", a: mbpp/mbpp_1, reason: " seen "}
"""


def overlap(a, b):
    sides = [problem(*name.split("/", 1), "") for name in (a, b)]
    return Overlap(*sides, {OverlapKind.NEAR: 0.9}, ("", ""))


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def failure(path):
    with pytest.raises(DataError) as caught:
        load_allowlist(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(path)
    return message.removeprefix(path)


def test_split(tmp_path):
    allowed = load_allowlist(written(tmp_path / "allow.yaml", YAML))
    known = overlap("humaneval/HumanEval/61", "humaneval/HumanEval/56")
    new = overlap("humaneval/HumanEval/56", "mbpp/mbpp_1")
    reviewed = review([new, known], allowed)
    assert reviewed.open == (new,)
    (accepted,) = reviewed.allowed
    assert accepted.pair == known.pair
    assert accepted.reviewed == "the same question about other brackets"
    assert reviewed.stale == tuple(allowed[1:])


ENTRY = "{a: x/1, b: y/1, reason: %s}"


def test_a_bad_file_is_refused(tmp_path):
    for content, told in (
        ("a: x/1", "not a list"),
        ("- {a: [", "not YAML"),
        ("- !!python/object:os.system {}", "not YAML"),
        ("[" * 1500, "not YAML"),
        (b"- \xff\xfe\x00", "not YAML"),
        ("- just text", "entry 1: "),
        (f"- {ENTRY % 'fine'}\n- {{a: x/1, b: y/2}}", "entry 2: reason: "),
        (f"- {ENTRY % 'null'}", "entry 1: reason: "),
        (f"- {ENTRY % '5'}", "entry 1: reason: "),
        ("- {a: x/1, b: y/1, reason: '  '}", "entry 1: reason: "),
        ("- {a: x, b: y/1, reason: seen}", "entry 1: a: "),
        ("- {a: x/1, b: 'y/ ', reason: seen}", "entry 1: b: "),
        ("- {a: x/1, b: y/1, reason: seen, by: me}", "entry 1: by: "),
        (f"- {ENTRY % 'one'}\n- {{b: x/1, a: y/1, reason: two}}", "entry 2: the same pair"),
    ):
        assert told in failure(written(tmp_path / "allow.yaml", content)), content
