"""Extraction of the Python program from a completion."""

import pytest

from shared.extraction import Extraction, extract
from shared.statuses import ExtractionReason as Reason

SOLVE = "def solve(n):\n    return n + 1"


@pytest.mark.parametrize(
    "opening",
    ["```python", "```py", "```Python", "```PYTHON", "```python3", "``` python", "```python  ",
     '```python title="a.py"', "```{.python}", "~~~python", "~~~~ py", "````python", "   ```python",
     "Here it is: ```python", "```Python 3.11", "```pypy3"],
)  # fmt: skip
def test_python_labels(opening):
    closing = opening.strip().removeprefix("Here it is: ")
    closing = closing[: len(closing) - len(closing.lstrip("`~"))]
    completion = f"Sure.\n{opening}\n{SOLVE}\n{closing}\nDone."
    assert extract(completion) == Extraction(SOLVE, Reason.FENCED)


@pytest.mark.parametrize(
    ("completion", "code", "reason"),
    [
        pytest.param(f"```\n{SOLVE}\n```", SOLVE, Reason.UNLABELLED, id="unlabelled"),
        pytest.param(
            f"```python\r\n{SOLVE}\r\n``` \r\n".replace("\n", "\r\n").replace("\r\r", "\r"),
            SOLVE,
            Reason.FENCED,
            id="crlf",
        ),
        pytest.param(
            "1. So:\n   ```python\n   def f():\n       return 1\n   ```\n",
            "def f():\n    return 1",
            Reason.FENCED,
            id="indented fence",
        ),
        pytest.param(
            "```python\n    def f():\n        return 1\n```",
            "def f():\n    return 1",
            Reason.FENCED,
            id="indented code",
        ),
        pytest.param(
            "```python\n    return n + 1\n```", "    return n + 1", Reason.FENCED, id="fenced body"
        ),
        pytest.param(
            f"```python\ndef solve(n):\n    pass\n```\nBetter:\n```python\n{SOLVE}\n```",
            SOLVE,
            Reason.FENCED,
            id="last wins",
        ),
        pytest.param(
            f"```python\n{SOLVE}\n```\nUse:\n```python\nprint(solve(3))\n```",
            SOLVE,
            Reason.FENCED,
            id="usage passed over",
        ),
        pytest.param(
            f"```\n{SOLVE}\n```\nOutput:\n```\nFalse\nTrue\n```",
            SOLVE,
            Reason.UNLABELLED,
            id="output passed over",
        ),
        pytest.param(
            "```python\ndef g():\n    pass\n```\n```python\nprint(int(input()) + 1)\n```",
            "print(int(input()) + 1)",
            Reason.FENCED,
            id="a program on standard input is an answer",
        ),
        pytest.param(
            f"```java\nclass A {{}}\n```\n```python\n{SOLVE}\n```\n```bash\nls\n```",
            SOLVE,
            Reason.FENCED,
            id="other languages",
        ),
        pytest.param("```java\nclass A {}\n```", "", Reason.NO_CODE_BLOCK, id="only Java"),
        pytest.param("```python\n```", "", Reason.NO_CODE_BLOCK, id="empty block"),
        pytest.param(
            f"```python\n{SOLVE}", SOLVE, Reason.UNCLOSED_FENCE, id="truncated"
        ),
        pytest.param(
            f"```python\n{SOLVE}\n```\nAnd:\n```python\ndef solve(n",
            SOLVE,
            Reason.FENCED,
            id="complete before truncated",
        ),
        pytest.param(
            f"```\n3\n```\n```python\n{SOLVE}", SOLVE, Reason.UNCLOSED_FENCE, id="sample, truncated"
        ),
        pytest.param(
            f"```\n3 4\n```python\n{SOLVE}\n```", SOLVE, Reason.FENCED, id="unclosed, then python"
        ),
        pytest.param(
            '```python\ndef f():\n    return "```"  # ```\n```',
            'def f():\n    return "```"  # ```',
            Reason.FENCED,
            id="backticks inside a line",
        ),
        pytest.param(
            '```python\ndef f():\n    """\n```\nf()\n```\n    """\n    return 1\n```\nDone',
            'def f():\n    """\n```\nf()\n```\n    """\n    return 1',
            Reason.FENCED,
            id="fences inside a string",
        ),
        pytest.param(
            '```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```',
            'def f():\n    """\n    ```\n    f()\n    ```\n    """',
            Reason.FENCED,
            id="deeper fences are content",
        ),
        pytest.param(
            '```python\nx = """\n```\nSo it goes.\n```\n',
            'x = """',
            Reason.FENCED,
            id="broken string",
        ),
        pytest.param(
            f"<think>\n```python\nwrong()\n```\n</think>\n```python\n{SOLVE}\n```",
            SOLVE,
            Reason.FENCED,
            id="reasoning",
        ),
        pytest.param(
            f"hm\n```python\ndef solve(): ...\n```\n</think>\n\n{SOLVE}",
            SOLVE,
            Reason.BARE_CODE,
            id="reasoning opened by the template",
        ),
        pytest.param(
            f"<think>so\n```python\n{SOLVE}\n```", "", Reason.NO_CODE_BLOCK, id="reasoning only"
        ),
        pytest.param(
            f"```python\n{SOLVE}\n```\n<think>was it", SOLVE, Reason.FENCED, id="text before"
        ),
        pytest.param(
            '```python\ndef f(s):\n    return s.split("<think>")\n```',
            'def f(s):\n    return s.split("<think>")',
            Reason.FENCED,
            id="the tag in code",
        ),
        pytest.param(
            f"```python\n{SOLVE}\nprint(solve(1))```\nThat is it.",
            f"{SOLVE}\nprint(solve(1))",
            Reason.FENCED,
            id="fence glued to code",
        ),
        pytest.param(
            f"```python\n{SOLVE}  # see ```\nx = (",
            f"{SOLVE}  # see ```\nx = (",
            Reason.UNCLOSED_FENCE,
            id="backticks in a comment, truncated",
        ),
        pytest.param(
            f"```python\n{SOLVE}\n\nif __name__ == '__main__':\n    print(solve(2))\n```",
            f"{SOLVE}\n\nif __name__ == '__main__':\n    print(solve(2))",
            Reason.FENCED,
            id="main guard stays",
        ),
        pytest.param(
            f"{SOLVE}\n\nprint(solve(2))\n",
            f"{SOLVE}\n\nprint(solve(2))",
            Reason.BARE_CODE,
            id="bare with an example",
        ),
        pytest.param(SOLVE + "\n", SOLVE, Reason.BARE_CODE, id="bare"),
        pytest.param(f"{SOLVE}\n```\nThat is it.", SOLVE, Reason.BARE_CODE, id="prompt's fence"),
        pytest.param(f"{SOLVE}\n~~~\nThat is it.", SOLVE, Reason.BARE_CODE, id="prompt's tildes"),
        pytest.param(
            "    # next\n    return n + 1\n",
            "    # next\n    return n + 1\n",
            Reason.BODY_ONLY,
            id="body",
        ),
        pytest.param(
            "    return n + 1\n\nprint(solve(1) or\n",
            "    return n + 1\n",
            Reason.BODY_ONLY,
            id="body, then something broken",
        ),
        pytest.param("return n + 1", "    return n + 1\n", Reason.BODY_ONLY, id="stripped body"),
        pytest.param(
            "for i in n:\n        print(i)\n    return n",
            "    for i in n:\n        print(i)\n    return n\n",
            Reason.BODY_ONLY,
            id="stripped first line",
        ),
        pytest.param(
            f"Here is my answer:\n\nimport math\n{SOLVE}\n\nIt runs in O(1). Note: good.",
            f"import math\n{SOLVE}",
            Reason.PROSE_HEURISTIC,
            id="prose",
        ),
        pytest.param("I do not know.", "", Reason.NO_CODE_BLOCK, id="prose only"),
        pytest.param("Sorry", "", Reason.NO_CODE_BLOCK, id="a word that parses"),
        pytest.param("Complexity: O(n)", "", Reason.NO_CODE_BLOCK, id="prose annotation"),
        pytest.param("", "", Reason.EMPTY, id="nothing"),
        pytest.param(" \r\n\t", "", Reason.EMPTY, id="blanks"),
    ],
)  # fmt: skip
def test_extraction(completion, code, reason):
    assert extract(completion) == Extraction(code, reason)
