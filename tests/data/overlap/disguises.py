"""Disguises of a copied problem: renamed, reformatted, translated headings, and others."""

import ast
import re
import textwrap
from dataclasses import replace

from services.data.records import ProblemText
from tests.data.overlap.support import problem

HEADINGS = {
    "zh": {
        "Input": "输入", "Output": "输出", "Example": "样例", "Examples": "样例", "Note": "提示",
        "Interaction": "交互", "Scoring": "评分", "Constraints": "数据范围", "Returns:": "返回:",
        "Example:": "示例:", "Examples:": "示例:", "Note:": "注意:", "For example:": "例如:",
        "The code has to pass these assertions:": "代码需要通过以下断言:",
    },
    "ru": {
        "Input": "Входные данные", "Output": "Выходные данные", "Example": "Пример",
        "Examples": "Примеры", "Note": "Примечание", "Interaction": "Протокол взаимодействия",
        "Scoring": "Система оценки", "Constraints": "Ограничения", "Returns:": "Возвращает:",
        "Example:": "Пример:", "Examples:": "Примеры:", "Note:": "Примечание:",
        "For example:": "Например:",
        "The code has to pass these assertions:": "Код должен пройти проверки:",
    },
}  # fmt: skip
# No article, no pronoun, nothing that an apostrophe leaves.
_VARIABLE = re.compile(r"(?<![\w'’])[b-hj-rt-z](?![\w'’])|(?<![\w'’])[a-z](?=_)")
_NEW_LETTERS = "kqwzuvhjmpxgfycebdolrnt"


def reindented(text, random):
    margin = random.choice(["    ", "\t", "  "])
    return "\n".join(margin + line.replace("    ", "\t") for line in text.split("\n"))


def crlf(text, random):
    return text.replace("\n", "\r\n")


def copied(text, random):
    return text


def translated(text, random):
    """Headings, and in docstrings what stands before the examples."""
    headings = HEADINGS[random.choice(sorted(HEADINGS))]
    return "\n".join(
        line.replace(line.strip(), headings.get(line.strip(), line.strip())) if line.strip() else ""
        for line in text.split("\n")
    )


def renamed(text, random):
    """Functions, parameters and variables of code; one-letter variables of prose."""
    names = code_names(text)
    if names:
        return rename(text, {name: f"{random.choice(_WORDS)}{n}" for n, name in enumerate(names)})
    letters = sorted(set(_VARIABLE.findall(text)))
    others = [letter for letter in _NEW_LETTERS if letter not in letters]
    random.shuffle(others)
    swapped = dict(zip(letters, others + letters, strict=False))
    return _VARIABLE.sub(lambda match: swapped[match[0]], text)


def rename(text, new_names):
    return re.sub(r"[^\W\d]\w*", lambda match: new_names.get(match[0], match[0]), text)


def rewrapped(text, random):
    width = random.choice([50, 60, 72])
    return "\n".join(_wrapped(line, width) if len(line) > 80 else line for line in text.split("\n"))


def instructed(text, random):
    return f"You are an expert programmer, and this is your task.\n\n{text}\n\nExplain nothing."


def spelled_out(text, random):
    """Variables of prose become words."""
    letters = sorted(set(_VARIABLE.findall(text)))
    return _VARIABLE.sub(lambda match: _LONGER[letters.index(match[0]) % len(_LONGER)], text)


def _wrapped(line, width):
    margin = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, width, initial_indent=margin, subsequent_indent=margin)


def code_names(text):
    """Names that the code binds, in order; those that MBPP's assertions call."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return list(dict.fromkeys(re.findall(r"^assert (?:not )?([a-zA-Z_]\w*)\(", text, re.M)))
    bound = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    bound += [node.arg for node in nodes if isinstance(node, ast.arg)]
    bound += [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return list(dict.fromkeys(bound))


_WORDS = ["solve", "item", "thing", "foo", "data_of", "helper", "some_value", "x", "arg"]
_LONGER = ["count", "limit", "index", "value", "total", "length", "width", "amount", "price"]

DISGUISES = {
    "copied": (copied,),
    "reindented": (reindented,),
    "crlf": (crlf,),
    "translated": (translated,),
    "renamed": (renamed,),
    "rewrapped": (rewrapped,),
    "instructed": (instructed,),
    "renamed, rewrapped": (renamed, rewrapped),
    "translated, spelled out": (translated, spelled_out),
    "reindented, crlf": (reindented, crlf),
    "renamed, translated": (renamed, translated),
    "renamed, translated, reindented, crlf": (renamed, translated, reindented, crlf),
}


# What changes prose has nothing to change in code.
_CODE_DISGUISES = {copied, reindented, crlf, renamed}


def disguised(original: ProblemText, name: str, random) -> ProblemText:
    """The problem as another data set might have it, with its solutions."""
    prompt, solutions = original.statement, list(original.solutions)
    for step in DISGUISES[name]:
        prompt = step(prompt, random)
        if step in _CODE_DISGUISES:
            solutions = [step(code, random) for code in solutions]
    copy = problem("copies", f"copy of {original.problem_id}", prompt, *solutions)
    return replace(copy, split="train")
