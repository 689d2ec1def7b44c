"""Readers of public data-set formats, by the names of their layouts."""

from collections.abc import Mapping

from services.data.config import LayoutKind
from services.data.layouts import contests, functions
from services.data.layouts.base import LayoutRow
from services.data.layouts.livecodebench import LiveCodeBenchRow

LAYOUTS: Mapping[LayoutKind, type[LayoutRow]] = {
    LayoutKind.HUMANEVAL: functions.HumanEvalRow,
    LayoutKind.MBPP: functions.MbppRow,
    LayoutKind.CODE_CONTESTS: contests.ContestRow,
    LayoutKind.CODE_CONTESTS_PLUS: contests.ContestPlusRow,
    LayoutKind.JSONL: functions.ProblemRow,
    LayoutKind.LIVECODEBENCH: LiveCodeBenchRow,
    LayoutKind.HUMANEVAL_PLUS: functions.HumanEvalPlusRow,
    LayoutKind.MBPP_PLUS: functions.MbppPlusRow,
    LayoutKind.MULTIPL_E: functions.MultiplERow,
}
