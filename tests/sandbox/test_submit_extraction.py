"""SandboxFusion's code extraction: rules shown by recorded answers, and others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sandbox.submit import function_body, mbpp_answer
from services.sandbox.submit_extraction import first_block, in_language, without_entry_point

FENCED = re.compile(r"`{3}(.*)\n([\s\S]*?)\n\s*`{3}")
TEXTS = st.lists(
    st.sampled_from(["```", "```python", "````", "``", "\n", "\n", "\n", " ", "\r", "\x85", "x"]),
    max_size=24,
).map("".join)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("```python\na\n```\n```python\nb\n```", "a"),
        ("```bash\na\n```\n```py\nb\n```", "b"),
        ("``` python title=x\na\n```\n```Python3 \nb\n```", "b"),
        ("```python\na\n", "a\n"),
        ("text ```python\na", "a"),
        ("```python\n  a\n\n \n  ```", "  a"),
        ("```python\n```\n```python\nb\n```", "```"),
        ("```python\ns = '''\n```\n'''\n```", "s = '''"),
        ("~~~python\na\n~~~", ""),
    ],
)
def test_block_in_language(completion: str, code: str):
    assert in_language(completion, "python") == code


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("x = 1\ndef f():\n\n  y\n\ndef g():\n  z\n", "def f():\n  y\n"),
        ("say:\n# c\nimport a\n\nclass A:\n\tx\nend", "# c\nimport a\nclass A:\n\tx\n"),
        ("from b import c\n\ndef f():\n  x", "from b import c\ndef f():\n  x\n"),
        ("import a\nsay\ndef f():\n  x", "def f():\n  x\n"),
        ("import a\ndef f(): pass\ndef g():\n  x", "def g():\n  x\n"),
        ("#\ndef f():\n  x", "def f():\n  x\n"),
        ("@cache\nasync def f():\n  x", ""),
        ("  def f():\n    x", ""),
    ],
)  # fmt: skip
def test_python_without_a_fence(completion: str, code: str):
    assert in_language(completion, "python") == code


def test_bash_without_a_fence_is_all_of_the_text():
    assert in_language("echo a\n\n \necho b", "bash") == "echo a\necho b\n"
    assert in_language("int main() {}", "cpp") == ""


def test_first_block_whatever_its_language():
    assert first_block("```sh\na\r\nb\n```\n```python\nc\n```", "python") == "a\nb"
    assert first_block('```\na\nif __name__ == "__main__":\n  b\n```', "python") == "a"
    assert first_block("", "python") == ""


@pytest.mark.parametrize(
    ("code", "language", "left"),
    [
        ('a\n\nif __name__ == "__main__":\n  b', "python", "a"),
        ("a\nif __name__ == '__main__':\n  b", "python", "a\nif __name__ == '__main__':\n  b"),
        ('a\nif __name__ == "__main__":', "bash", 'a\nif __name__ == "__main__":'),
        ("int f();\nint main() { }", "cpp", "int f();"),
        ("int main(void) { }\n", "cpp", "int main(void) { }\n"),
        ("  a\n  # Example usage\nb", "bash", "a"),
        ("  a\n# Example\n", "python", "  a\n# Example\n"),
    ],
)
def test_entry_points(code: str, language: str, left: str):
    assert without_entry_point(code, language) == left


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("```\na\n```\n[DONE]\n```\nb\n```", "a"),
        ("[DONE]\n```\nb\n```", ""),
        ("```\na\nassert a\nb\n```", "a"),
        ('```\na\n"""\nassert\n```', "a"),
        ("```\nassert a\n```", "assert a"),
    ],
)
def test_mbpp_answer(completion: str, code: str):
    assert mbpp_answer(completion) == code


@pytest.mark.parametrize(
    ("completion", "body"),
    [
        ("    a\n\n    b\n\nprint()\n", "    a\n\n    b\n"),
        ("a\n  b\n", "a\n  b\n"),
        ("a\nb", "a"),
        ("  a\n# c", "  a"),
        ("  a\n\x1c\u00a0b\n", "  a\n\x1c\u00a0b\n"),
    ],
)
def test_function_body(completion: str, body: str):
    assert function_body(completion) == body


@given(TEXTS)
def test_complete_blocks_are_those_of_the_plain_expression(text: str):
    blocks = FENCED.findall(text)
    if not blocks:
        return
    named = [code for tag, code in blocks if tag.strip() == "python"]
    assert in_language(text, "python") == (named or [code for _, code in blocks])[0]


def test_long_texts_end():
    """In quadratic time the first of them would take longer than a test may."""
    for part in ("```\n", "\n", "`", "\n ", "import a\n", "def f():\n", "```x\ny\n\n", "\r"):
        text = "```\n" + part * 100_000
        for language in ("python", "bash"):
            for each in (text, text[4:]):
                in_language(each, language)
                function_body(first_block(each, language))
