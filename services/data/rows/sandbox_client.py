"""A SandboxFusion asked for a data set, through its SDK."""

from dataclasses import dataclass
from typing import Any

import sandbox_fusion as sdk

from services.data.config import SandboxSource
from services.data.rows.sandbox_requests import Patience, ask
from shared.reading import data_error

# Reads all of its input: some servers fail a program that ends before it has got it.
IDLE_PROGRAM = "```python\nimport sys\nsys.stdin.read()\n```"
CASE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """One problem as ``get_prompts`` gives it."""

    id: int | str
    text: str
    labels: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Standard input and the output expected for it."""

    stdin: str
    stdout: str


class SandboxClient:
    """Asks for one data set of one server.

    ``dataset_class`` is the server's class for data sets that it does not have registered.
    All methods raise DataError: the server cannot be reached or refuses; one line with its reason.
    """

    def __init__(self, source: SandboxSource, dataset_class: str, patience: Patience) -> None:
        self.dataset = source.dataset
        self.place = f"{source.url.rstrip('/')} {source.dataset}"
        self._url = source.url.rstrip("/")
        self._extra = {} if source.split is None else {"split": source.split}
        self._class = dataset_class
        self._patience = patience
        self._returns_all_cases = False

    def prompts(self, offset: int, limit: int, language: str | None = None) -> list[Prompt]:
        """Problems in the order of their ids; for ``language`` where the prompt names one."""
        request = sdk.GetPromptsRequest(
            dataset=self.dataset,
            config=sdk.TestConfig(
                dataset_type=self._class, is_fewshot=False, language=language, extra=self._extra
            ),
            offset=offset,
            limit=limit,
        )
        found: list[Any] = ask(
            self.place, lambda: sdk.get_prompts_async(request, endpoint=self._url), self._patience
        )
        return [Prompt(prompt.id, prompt.prompt, prompt.labels) for prompt in found]

    def cases(self, key: int | str) -> list[Case]:
        """All test cases of a problem: what they are is part of a verdict on any program."""
        if not self._returns_all_cases:
            self._check_cases()
        return self._judged_cases(key)

    def _check_cases(self) -> None:
        """Refuse a server that stops at the first failed case, or shortens those passed."""
        cases = [Case("", "x"), Case("x" * 2000, "")]
        record: dict[str, object] = {
            "id": 0,
            "content": "",
            "labels": {},
            "test": [
                {"input": {"stdin": case.stdin}, "output": {"stdout": case.stdout}}
                for case in cases
            ],
        }
        if self._judged_cases(0, record) != cases:
            cause = "does not return all test cases whole (extra.run_all_cases, return_full_case)"
            raise data_error(self._url, f"{cause}; use a newer SandboxFusion")
        self._returns_all_cases = True

    def _judged_cases(self, key: int | str, record: dict[str, object] | None = None) -> list[Case]:
        config = sdk.TestConfig(
            dataset_type=self._class,
            language="python",
            run_timeout=CASE_SECONDS,
            provided_data=record,
            extra=self._extra | {"run_all_cases": True, "return_full_case": True},
        )
        request = sdk.SubmitRequest(
            dataset=self.dataset, id=key, completion=IDLE_PROGRAM, config=config
        )
        place = f"{self.place} id {key!r}"
        result = ask(
            place,
            lambda: sdk.submit_async(request, endpoint=self._url, max_attempts=1),
            self._patience,
        )
        return [_case(f"{place} case {n}", test.test_info) for n, test in enumerate(result.tests)]


def _case(place: str, info: dict[str, Any] | None) -> Case:
    """Other names than those of the streams are the server's files, which it does not compare."""
    match info:
        case {"input": {"stdin": str() as stdin}, "output": {"stdout": str() as stdout}}:
            return Case(stdin, stdout)
    cause = "the server's answer has no test_info with input.stdin and output.stdout"
    raise data_error(place, f"{cause}; see that its table is one of CommonOJDataset")
