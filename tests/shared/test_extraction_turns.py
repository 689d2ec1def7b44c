"""Turns and tokens: the program is that of the final message, and a token within it is text."""

import pytest

from shared.extraction import extract

RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
TOOL = (
    "<|channel|>analysis<|message|>test it<|end|><|start|>assistant<|channel|>commentary to=python "
    "code<|message|>print(1-2)<|call|><|start|>python to=assistant<|channel|>commentary<|message|>"
    "-1<|end|>"
)
FINAL = "<|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    "completion",
    [
        f"{TOOL}{FINAL}{RIGHT}<|return|>",
        f"{TOOL}{TOOL.replace('<|channel|>', '<|start|>assistant<|channel|>', 1)}{FINAL}{RIGHT}",
        f"<|channel|>final<|message|>{RIGHT}<|return|>",
        f"<|channel|>analysis<|message|>```python\nprint(0)\n```<|end|>{FINAL}{RIGHT}<|return|>",
        f"<think>\n```python\nprint(0)\n```\n</think>\n{RIGHT}",
        "<think>" + 100_000 * "a thought\n" + f"</think>{RIGHT}",
    ],
    ids=["tool", "two tools", "final alone", "analysis", "reasoning", "long reasoning"],
)
def test_the_final_message_counts(completion: str) -> None:
    assert extract(completion).code.strip() == RIGHT[len("```python\n") : -len("\n```")]


@pytest.mark.parametrize("tag", ["<think>", "<thinking>", "[THINK]", "<reasoning>"])
@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_a_tag_in_the_program_is_text(tag: str, fence: str) -> None:
    code = f's = input()\nprint("""\\\n{tag}\n""" + s)'
    assert extract(f"{fence}python\n{code}\n{fence}\n").code.strip() == code
