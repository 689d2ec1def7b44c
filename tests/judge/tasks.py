"""Answers to be judged, and what a method says of them as the record that is kept."""

import json

from services.judge.methods import Method, Task
from services.judge.outcome import to_verdict
from services.judge.sandbox import Attempts, SandboxClient
from shared.config import load_config
from shared.schemas import Problem, Verdict
from tests.shared.ledgers import generation, problem


def fenced(code: str, language: str = "python") -> str:
    return f"Here it is:\n```{language}\n{code}\n```\nDone."


def stdio(*cases: tuple[str, str], **fields: str | None) -> Problem:
    """A problem with inputs and outputs; the fields are those of ``StdioTests``."""
    inputs, outputs = zip(*cases, strict=True)
    return problem(ground_truth=json.dumps({"inputs": inputs, "outputs": outputs, **fields}))


def make_task(sandbox: SandboxClient, problem: Problem, completion: str, *overrides: str) -> Task:
    config = load_config(None, overrides)
    return Task(problem, completion, config.judge, config.sandbox, sandbox, Attempts())


async def verdict_of(method: Method, task: Task) -> Verdict:
    judgement = await method(task)
    return to_verdict(generation(completion=task.completion), judgement, task.attempts, "w")
