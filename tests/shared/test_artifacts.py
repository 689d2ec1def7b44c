import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.files import write_text
from shared.schemas import Generation
from tests.shared.ledgers import generation


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_is_made_and_the_files_are_written(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "a" / "b"))
    assert not folder.exists("x.json")
    folder.write_json("x.json", {"ä": [1, None]})
    folder.write_jsonl("x.jsonl", [generation("p1"), generation("p2")])
    assert names(tmp_path / "a" / "b") == ["x.json", "x.jsonl"]
    assert "ä" in (tmp_path / "a" / "b" / "x.json").read_text("utf-8")
    assert folder.read_json("x.json") == {"ä": [1, None]}
    lines = (tmp_path / "a" / "b" / "x.jsonl").read_text("utf-8").splitlines()
    assert [Generation.model_validate_json(line) for line in lines] == [
        generation("p1"),
        generation("p2"),
    ]


def test_a_relative_folder_is_local_and_has_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = OutputFolder("out")
    assert folder.local
    assert folder.path == str(tmp_path / "out")
    assert OutputFolder(f"file://{tmp_path}/out").path == folder.path


def test_an_exception_inside_leaves_the_old_file_whole(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    folder.write_jsonl("x.jsonl", [generation("old")])
    before = (tmp_path / "x.jsonl").read_bytes()

    def records() -> Iterator[Generation]:
        yield from (generation(f"p{i}", "x" * 1000) for i in range(1000))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        folder.write_jsonl("x.jsonl", records())
    assert (tmp_path / "x.jsonl").read_bytes() == before
    assert names(tmp_path) == ["x.jsonl"]


def test_an_exception_inside_leaves_no_file_where_there_was_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        OutputFolder(str(tmp_path)).write_json("x.json", {"a": 1, "b": float("nan")})
    assert names(tmp_path) == []


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    folder.write_jsonl("x.jsonl", [generation("old")])
    seen = []

    def records() -> Iterator[Generation]:
        for i in range(100):
            yield generation(f"p{i}")
            seen.append((tmp_path / "x.jsonl").read_text().count("\n"))

    folder.write_jsonl("x.jsonl", records())
    assert set(seen) == {1}
    assert (tmp_path / "x.jsonl").read_text().count("\n") == 100


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*/file/out/x\.json: Not a directory"):
        OutputFolder(str(tmp_path / "file" / "out")).write_json("x.json", {})


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        OutputFolder(str(tmp_path / "out")).write_json("x.json", {})
    assert names(tmp_path) == ["out"]


def test_a_full_disk(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))

    def records() -> Iterator[Generation]:
        yield generation()
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"x\.jsonl: No space left on device"):
        folder.write_jsonl("x.jsonl", records())
    assert names(tmp_path) == []


def test_reading_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert OutputFolder(str(tmp_path)).read_json("x.json") is None
    assert OutputFolder(str(tmp_path / "absent")).read_json("x.json") is None


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"nul"])
def test_reading_what_is_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(OutputError, match=r"x\.json cannot be read"):
        OutputFolder(str(tmp_path)).read_json("x.json")


def test_removing(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    folder.write_json("a", 1)
    folder.write_json("b", 1)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "d").write_text("")
    folder.remove(["a", "c", "absent"])
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize("url", ["nosuchprotocol://bucket/x", "nosuch+thing://y"])
def test_a_url_without_a_filesystem(url: str) -> None:
    with pytest.raises(OutputError, match="output") as caught:
        OutputFolder(url)
    assert url in str(caught.value)


def test_a_folder_in_memory() -> None:
    root = f"/{uuid.uuid4().hex}/out"
    folder = OutputFolder(f"memory:/{root}")
    assert not folder.local
    assert folder.read_json("x.json") is None
    folder.write_json("x.json", {"a": 1})
    folder.write_json("x.json", {"a": 2})
    folder.write_jsonl("x.jsonl", [generation()])
    assert folder.read_json("x.json") == {"a": 2}
    memory = fsspec.filesystem("memory")
    assert sorted(memory.ls(root, detail=False)) == [f"{root}/x.json", f"{root}/x.jsonl"]
    assert json.loads(memory.cat(f"{root}/x.jsonl"))["problem_id"] == "p1"
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("x.json", float("inf"))
    assert folder.read_json("x.json") == {"a": 2}
    folder.remove(["x.json"])
    assert memory.ls(root, detail=False) == [f"{root}/x.jsonl"]


# shared.files


def test_write_text_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "port"
    write_text(path, "1\n")
    write_text(path, "2ä\n")
    assert path.read_text("utf-8") == "2ä\n"
    assert names(tmp_path) == ["port"]


def test_write_text_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "port"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new\ud800")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["port"]
