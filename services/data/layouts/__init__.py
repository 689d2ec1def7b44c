"""Layout registry: the readers of public data-set formats, by name."""

from collections.abc import Mapping

from services.data.config import LayoutKind
from services.data.layouts import (
    code_contests,
    code_contests_plus,
    evalplus,
    functions,
    jsonl,
    livecodebench,
    multipl_e,
)
from services.data.layouts.base import Layout
from shared.errors import DataError

LAYOUTS: Mapping[str, Layout] = {
    LayoutKind.HUMANEVAL: functions.HUMANEVAL,
    LayoutKind.MBPP: functions.MBPP,
    LayoutKind.CODE_CONTESTS: code_contests.CODE_CONTESTS,
    LayoutKind.CODE_CONTESTS_PLUS: code_contests_plus.CODE_CONTESTS_PLUS,
    LayoutKind.JSONL: jsonl.JSONL,
    LayoutKind.LIVECODEBENCH: livecodebench.LIVECODEBENCH,
    LayoutKind.HUMANEVAL_PLUS: evalplus.HUMANEVAL_PLUS,
    LayoutKind.MBPP_PLUS: evalplus.MBPP_PLUS,
    LayoutKind.MULTIPL_E: multipl_e.MULTIPL_E,
}


def get_layout(name: str) -> Layout:
    """Look a layout up.

    Raises:
        DataError: The name is unknown; lists the known ones.
    """
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise DataError(f"{name!r} is not a layout that can be imported; choose one of {known}")
    return LAYOUTS[name]
