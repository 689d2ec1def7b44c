"""SandboxFusion's code extraction: rules shown by recorded answers, and others."""

import re
from collections.abc import Callable
from functools import partial

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


python, bash, cpp, nodejs, java, go, rust = (
    partial(in_language, language=language)
    for language in ("python", "bash", "cpp", "nodejs", "java", "go", "rust")
)
first = partial(first_block, language="python")
cut_python, cut_bash, cut_cpp = (
    partial(without_entry_point, language=language) for language in ("python", "bash", "cpp")
)


@pytest.mark.parametrize(
    ("extract", "text", "code"),
    [
        (python, "```python\na\n```\n```python\nb\n```", "a"),
        (python, "```bash\na\n```\n```py\nb\n```", "b"),
        (python, "``` python title=x\na\n```\n```Python3 \nb\n```", "b"),
        (python, "```python\na\n", "a\n"),
        (python, "text ```python\na", "a"),
        (python, "```python\n  a\n\n \n  ```", "  a"),
        (python, "```python\n```\n```python\nb\n```", "```"),
        (python, "```python\ns = '''\n```\n'''\n```", "s = '''"),
        (python, "~~~python\na\n~~~", ""),
        # Without a fence
        (python, "x = 1\ndef f():\n\n  y\n\ndef g():\n  z\n", "def f():\n  y\n"),
        (python, "say:\n# c\nimport a\n\nclass A:\n\tx\nend", "# c\nimport a\nclass A:\n\tx\n"),
        (python, "from b import c\n\ndef f():\n  x", "from b import c\ndef f():\n  x\n"),
        (python, "import a\nsay\ndef f():\n  x", "def f():\n  x\n"),
        (python, "import a\ndef f(): pass\ndef g():\n  x", "def g():\n  x\n"),
        (python, "#\ndef f():\n  x", "def f():\n  x\n"),
        (python, "@cache\nasync def f():\n  x", ""),
        (python, "  def f():\n    x", ""),
        (bash, "echo a\n\n \necho b", "echo a\necho b\n"),
        (cpp, "int main() {}", ""),
        (nodejs, "```python\na\n```\n```js\nb\n```", "b"),
        (nodejs, "```python\na\n```\n```javascript\nb\n```", "a"),
        (java, "```python\na\n```\n```java\nb\n```", "b"),
        (go, "```\na\n```\n```Go\nb\n```", "b"),
        (rust, "```sh\na\n```\n```rs\nb\n```", "b"),
        # The first block, whatever its language
        (first, "```sh\na\r\nb\n```\n```python\nc\n```", "a\nb"),
        (first, '```\na\nif __name__ == "__main__":\n  b\n```', "a"),
        (first, "", ""),
        (cut_python, 'a\n\nif __name__ == "__main__":\n  b', "a"),
        (cut_python, "a\nif __name__ == '__main__':\n  b", "a\nif __name__ == '__main__':\n  b"),
        (cut_bash, 'a\nif __name__ == "__main__":', 'a\nif __name__ == "__main__":'),
        (cut_cpp, "int f();\nint main() { }", "int f();"),
        (cut_cpp, "int main(void) { }\n", "int main(void) { }\n"),
        (cut_bash, "  a\n  # Example usage\nb", "a"),
        (cut_python, "  a\n# Example\n", "  a\n# Example\n"),
        (mbpp_answer, "```\na\n```\n[DONE]\n```\nb\n```", "a"),
        (mbpp_answer, "[DONE]\n```\nb\n```", ""),
        (mbpp_answer, "```\na\nassert a\nb\n```", "a"),
        (mbpp_answer, '```\na\n"""\nassert\n```', "a"),
        (mbpp_answer, "```\nassert a\n```", "assert a"),
        (function_body, "    a\n\n    b\n\nprint()\n", "    a\n\n    b\n"),
        (function_body, "a\n  b\n", "a\n  b\n"),
        (function_body, "a\nb", "a"),
        (function_body, "  a\n# c", "  a"),
        (function_body, "  a\n\x1c\u00a0b\n", "  a\n\x1c\u00a0b\n"),
    ],
)
def test_extraction(extract: Callable[[str], str], text: str, code: str):
    assert extract(text) == code


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
