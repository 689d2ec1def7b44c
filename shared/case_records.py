"""Records of single cases: packed by the judge, kept in the ledger, completed from the problem.

The ledger keeps only what the problem does not tell, compressed and bounded, as one value for a
sample. Who reads it adds the input and the expected output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Self, TypeVar

from shared.schemas import (
    CaseRecord,
    CaseResult,
    GroundTruth,
    HumanEvalTests,
    MbppTests,
    Part,
    ProgramTests,
    RecordedCases,
    SampleId,
    StdioTests,
    without_surrogates,
)
from shared.statuses import NOT_RUN, FinalStatus
from shared.text import pack, shorten_middle, shown, unpack

CaseT = TypeVar("CaseT", bound=CaseResult)
MOST_BYTES = 64 * 1024
"""Bytes of a sample's cases as packed, as long as shorter texts help."""
# Characters of a text: first as many as a verdict has, then fewer.
_CHARS = (None, 400, 80, 0)
_TEXTS = ("actual", "stderr", "compile_stderr")


class SampleCases(Part):
    """The recorded cases of one sample, in order; ``recorded`` says which ones these are."""

    recorded: RecordedCases
    cases: tuple[CaseResult, ...]

    def packed(self) -> bytes:
        """Return the record for the ledger; the more its texts, the shorter each of them."""
        for most in _CHARS:
            cases = tuple(case.model_copy(update=_texts(case, most)) for case in self.cases)
            record = self.model_copy(update={"cases": cases})
            packed = pack(record.model_dump_json(exclude_none=True))
            if len(packed) <= MOST_BYTES:
                break
        return packed

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Parse a record of the ledger.

        Raises:
            ValueError: It is none.
        """
        return cls.model_validate_json(unpack(packed))

    def of(self, sample: SampleId, tests: GroundTruth | None) -> Iterator[CaseRecord]:
        """Yield the cases with what the problem's tests say of them, if they can be read."""
        for case in self.cases:
            stdin, expected = map(_clean, _of_tests(tests, case.case_index))
            fields = dict(case) | asdict(sample) | {"input": stdin, "expected": expected}
            yield CaseRecord(**fields)


def failed(case: CaseResult) -> bool:
    """Whether a case counts against the answer; one that was not run does not."""
    return case.status not in (FinalStatus.SUCCESS, NOT_RUN)


def failing_first(cases: Sequence[CaseT]) -> list[CaseT]:
    """Sort cases for a reader: those that failed, those that were not run, then the others."""
    return sorted(cases, key=lambda case: (not failed(case), case.status != NOT_RUN))


def _texts(case: CaseResult, most: int | None) -> dict[str, str | None]:
    """Return texts of at most ``most`` characters; None for as many as a verdict has."""
    texts = {name: getattr(case, name) for name in _TEXTS}
    if most is None:
        return {name: _clean(text) for name, text in texts.items()}
    if most == 0:
        return dict.fromkeys(texts)
    return {name: text and shorten_middle(text, most) for name, text in texts.items()}


def _clean(text: str | None) -> str | None:
    return None if text is None else without_surrogates(shown(text))


def _of_tests(tests: GroundTruth | None, place: int) -> tuple[str | None, str | None]:
    """Return input and expected output of a case; for other tests nothing and the test's text."""
    if tests is None or place >= tests.cases:
        return None, None
    if isinstance(tests, HumanEvalTests):
        return None, tests.test
    if isinstance(tests, MbppTests):
        return None, tests.test_list[place]
    if isinstance(tests, ProgramTests):
        return None, tests.program_tests
    if isinstance(tests, StdioTests):
        return tests.inputs[place], tests.outputs[place]
    return None, None
