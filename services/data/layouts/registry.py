"""The layouts by name."""

from collections.abc import Mapping
from enum import StrEnum

from services.data.layouts import code_contests, humaneval, jsonl, mbpp
from services.data.layouts.base import Layout
from shared.errors import DataError


class LayoutKind(StrEnum):
    """The layouts that can be read."""

    HUMANEVAL = "humaneval"
    MBPP = "mbpp"
    CODE_CONTESTS = "code_contests"
    JSONL = "jsonl"


LAYOUTS: Mapping[str, Layout] = {
    LayoutKind.HUMANEVAL: humaneval,
    LayoutKind.MBPP: mbpp,
    LayoutKind.CODE_CONTESTS: code_contests,
    LayoutKind.JSONL: jsonl,
}


def get_layout(name: str) -> Layout:
    """Look a layout up.

    Raises:
        DataError: There is none of that name; names those that there are.
    """
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise DataError(f"{name!r} is no layout that can be imported; choose {known}")
    return LAYOUTS[name]
