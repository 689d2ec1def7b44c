"""Readers of public data-set formats, by the names of their layouts."""

from collections.abc import Mapping
from typing import Any

from services.data.config import LayoutKind
from services.data.layouts import contests, functions, livecodebench, others
from services.data.layouts.base import Layout

LAYOUTS: Mapping[LayoutKind, Layout[Any]] = {
    LayoutKind.HUMANEVAL: functions.HUMANEVAL,
    LayoutKind.MBPP: functions.MBPP,
    LayoutKind.CODE_CONTESTS: contests.CODE_CONTESTS,
    LayoutKind.CODE_CONTESTS_PLUS: contests.CODE_CONTESTS_PLUS,
    LayoutKind.JSONL: others.JSONL,
    LayoutKind.LIVECODEBENCH: livecodebench.LIVECODEBENCH,
    LayoutKind.HUMANEVAL_PLUS: functions.HUMANEVAL_PLUS,
    LayoutKind.MBPP_PLUS: functions.MBPP_PLUS,
    LayoutKind.MULTIPL_E: others.MULTIPL_E,
}
