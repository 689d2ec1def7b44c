import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared.config import Config
from shared.datasets import read_datasets
from shared.prompts import chat_messages
from tools.tiny_model import DEMO, MARKER_FILE, read_demo

REPOSITORY = Path(__file__).parents[2]


def program(*arguments: object, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "tools.tiny_model", *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_prompts_are_those_of_a_run() -> None:
    sent = {
        f"{row.dataset}/{row.problem_id}": chat_messages(row, Config())
        for row in read_datasets([str(DEMO / "data")])
    }
    assert {problem.name: problem.messages for problem in read_demo()} == sent


def test_some_answers_are_right_and_some_have_no_end_to_learn() -> None:
    answers = read_demo()
    assert 0.3 <= sum(answer.right for answer in answers) / len(answers) <= 0.7
    assert {answer.finish_reason for answer in answers} == {"stop", "length"}


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    ended = program(tmp_path)
    assert ended.returncode == 2
    assert "something other than a model" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_without_torch_it_says_which_environment_is_needed(tmp_path: Path) -> None:
    ended = program(tmp_path / "model")
    assert ended.returncode == 2
    assert "torch" in ended.stderr
    assert "engine's environment" in ended.stderr


@pytest.mark.nightly
@pytest.mark.verl
@pytest.mark.timeout(300)
def test_a_model_is_trained_the_same_way_twice(tmp_path: Path, verl_python: Path) -> None:
    for name in ("first", "second"):
        ended = program(tmp_path / name, "--epochs", 1, python=str(verl_python))
        assert ended.returncode == 0, ended.stderr

    first, second = tmp_path / "first", tmp_path / "second"
    names = {path.name for path in first.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors"} <= names
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", MARKER_FILE} <= names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert json.loads((first / MARKER_FILE).read_text())["epochs"] == 1


_READ_BACK = """
import sys
from transformers import AutoTokenizer
from tools.tiny_model import read_demo, texts, train_tokenizer
learnt = texts(read_demo())
made = train_tokenizer(learnt)
made.save_pretrained(sys.argv[1])
with open(sys.argv[1] + "/config.json", "w") as file:
    file.write('{"model_type": "qwen2"}')
read = AutoTokenizer.from_pretrained(sys.argv[1])
assert [read.encode(text) for text in learnt] == [made.encode(text) for text in learnt]
assert [read.decode(made.encode(text)) for text in learnt] == learnt
turn = [{"role": "user", "content": "b"}]
print(read.apply_chat_template(turn, add_generation_prompt=True, tokenize=False), end="")
"""


@pytest.mark.nightly
@pytest.mark.verl
@pytest.mark.timeout(300)
def test_an_engine_reads_the_tokenizer_as_it_was_made(tmp_path: Path, verl_python: Path) -> None:
    ended = subprocess.run(
        [verl_python, "-c", _READ_BACK, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
