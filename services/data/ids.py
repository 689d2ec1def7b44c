"""The numbers of problems that ``--ids`` selects."""

import re
from dataclasses import dataclass

from shared.errors import DataError

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class IdRanges:
    """Numbers and ranges of numbers, both ends included, in the order they were given."""

    ranges: tuple[range, ...]

    def __contains__(self, number: int) -> bool:
        return any(number in numbers for numbers in self.ranges)

    def __str__(self) -> str:
        return ",".join(
            str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
            for numbers in self.ranges
        )


def parse_ids(text: str) -> IdRanges:
    """Parse numbers and ranges such as ``11-210`` or ``1,5,20-30``.

    Raises:
        DataError: Not that form, or a range that ends before it begins.
    """
    return IdRanges(tuple(_parse_part(text, part.strip()) for part in text.split(",")))


def _parse_part(text: str, part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise DataError(
            f"--ids {text!r}: {part!r} is no number or range; write 11-210 or 1,5,20-30"
        )
    first = int(match[1])
    last = int(match[2] or first)
    if last < first:
        raise DataError(f"--ids {text!r}: the range {part} ends before it begins; swap its ends")
    return range(first, last + 1)
