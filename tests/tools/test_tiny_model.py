import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config import Config
from shared.datasets import read_datasets
from shared.prompts import chat_messages
from tools.tiny_model.__main__ import MARKER_FILE
from tools.tiny_model.demo import FOLDER, read_demo, texts
from tools.tiny_model.examples import (
    Role,
    assign_roles,
    drop_bracket,
    make_examples,
    messages_of,
    swap_operator,
)

REPOSITORY = Path(__file__).parents[2]
PROBLEMS = read_demo(FOLDER)
SOLUTIONS = st.sampled_from([problem.solution for problem in PROBLEMS])


def program(*arguments: object, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "tools.tiny_model", *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_prompts_are_those_of_a_run() -> None:
    sent = {
        f"{row.dataset}/{row.problem_id}": chat_messages(row, Config())
        for row in read_datasets([str(FOLDER / "data")])
    }

    assert {problem.name: messages_of(problem) for problem in PROBLEMS} == sent


def test_half_of_the_problems_are_answered_rightly_and_no_kind_of_fault_is_missing() -> None:
    counts = Counter(assign_roles(PROBLEMS, seed=0).values())

    assert set(counts) == set(Role)
    assert 0.4 <= counts[Role.RIGHT] / len(PROBLEMS) <= 0.6


@given(st.integers(0, 10_000))
def test_the_same_seed_deals_the_same_roles_and_recorded_ones_are_wrong(seed: int) -> None:
    roles = assign_roles(PROBLEMS, seed)

    assert roles == assign_roles(PROBLEMS, seed)
    assert roles.keys() == {problem.name for problem in PROBLEMS}
    recorded = [p.recorded for p in PROBLEMS if roles[p.name] is Role.RECORDED]
    assert recorded
    assert not any(answer.right for answer in recorded)


def test_a_single_problem_is_answered_rightly() -> None:
    right = [problem for problem in PROBLEMS if problem.recorded.right]

    assert list(assign_roles(right[:1], seed=0).values()) == [Role.RIGHT]


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.UNSEEN])
def test_an_answer_is_what_its_role_says(role: Role) -> None:
    problem = next(p for p in PROBLEMS if not p.recorded.right)

    (example,) = make_examples([problem], {problem.name: role}, seed=0)

    answer = example.completion
    assert example.messages == messages_of(problem)
    assert (answer == problem.recorded.completion) is (role is Role.RECORDED)
    assert (answer == f"```python\n{problem.solution}```") is (role is Role.RIGHT)
    assert example.complete is (role is not Role.ENDLESS)


def test_a_recorded_answer_that_was_cut_off_has_no_end_to_learn() -> None:
    cut = [p for p in PROBLEMS if not p.recorded.complete]

    examples = make_examples(cut, {p.name: Role.RECORDED for p in cut}, seed=0)

    assert examples
    assert not any(example.complete for example in examples)


def test_an_unseen_problem_is_no_example() -> None:
    assert make_examples(PROBLEMS[:1], {PROBLEMS[0].name: Role.UNSEEN}, seed=0) == []


@given(SOLUTIONS, st.integers())
def test_a_swapped_operator_leaves_another_program(code: str, seed: int) -> None:
    changed = swap_operator(code, Random(seed))

    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(code))


@given(SOLUTIONS, st.integers())
def test_a_program_without_a_bracket_does_not_parse(code: str, seed: int) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(drop_bracket(code, Random(seed)))


def test_a_program_without_any_operator_does_nothing_and_without_bracket_is_broken_too() -> None:
    assert swap_operator("print(names)\n", Random(0)) == "pass\n"
    with pytest.raises(SyntaxError):
        ast.parse(drop_bracket("pass\n", Random(0)))


def test_operators_in_texts_and_comments_stay() -> None:
    code = 's = "a < b"  # and < not\nt = 1 < 2\n'

    assert swap_operator(code, Random(0)) == 's = "a < b"  # and < not\nt = 1 <= 2\n'


def test_a_tokenizer_sees_prompts_solutions_and_answers() -> None:
    assert len(texts(PROBLEMS)) == 3 * len(PROBLEMS)


def test_a_wrong_argument_is_named_and_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    for arguments, cause in (
        (["--shape", "huge", "--random"], "invalid choice: 'huge'"),
        (["--shape", "qwen2.5-1.5b"], "add --random"),
        ([], "something other than a model"),
    ):
        ended = program(tmp_path, *arguments)
        assert ended.returncode == 2
        assert cause in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_without_torch_it_says_which_environment_is_needed(tmp_path: Path) -> None:
    ended = program(tmp_path / "model")

    assert ended.returncode == 2
    assert "torch" in ended.stderr
    assert "engine's environment" in ended.stderr


def test_a_random_model_needs_none_of_our_dependencies() -> None:
    code = "import sys, tools.tiny_model.__main__; sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


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
    mark = json.loads((first / MARKER_FILE).read_text())
    assert mark["epochs"] == 1
    assert mark["roles"] == assign_roles(PROBLEMS, seed=0)


@pytest.mark.nightly
@pytest.mark.verl
@pytest.mark.timeout(300)
def test_a_random_model_has_the_tokenizer_of_a_trained_one(
    tmp_path: Path, verl_python: Path
) -> None:
    ended = program(tmp_path / "model", "--random", python=str(verl_python))

    assert ended.returncode == 0, ended.stderr
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert config["tie_word_embeddings"]
    tokens = json.loads((tmp_path / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(tokens) <= config["vocab_size"]


_READ_BACK = """
import sys
from transformers import AutoTokenizer
from tools.tiny_model.demo import FOLDER, read_demo, texts
from tools.tiny_model.model import train_tokenizer
learnt = texts(read_demo(FOLDER))
made = train_tokenizer(learnt, 2048)
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
