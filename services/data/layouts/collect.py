"""All that a layout makes of a source, with every problem there once."""

from collections.abc import Iterable

from services.data.layouts.base import Dropped, Imported
from shared.reading import data_error


def collect(
    source: str, found: Iterable[Imported | Dropped]
) -> tuple[list[Imported], tuple[Dropped, ...]]:
    """Take problems and dropped rows apart, each in its order.

    Args:
        source: What an error calls all the rows together.
        found: What the layout gives.

    Raises:
        DataError: A row cannot be used, two have the same id, or there is no problem.
    """
    imported: list[Imported] = []
    dropped: list[Dropped] = []
    places: dict[str, str] = {}
    for row in found:
        problem_id = row.problem.problem_id if isinstance(row, Imported) else row.problem_id
        if problem_id in places:
            cause = f"duplicate problem {problem_id!r}, also at {places[problem_id]}"
            raise data_error(row.place, f"{cause}; keep one of them")
        places[problem_id] = row.place
        if isinstance(row, Imported):
            imported.append(row)
        else:
            dropped.append(row)
    if not imported:
        why = f"all {len(dropped)} rows were dropped: {dropped[0].reason}" if dropped else "no rows"
        raise data_error(source, f"no problem in it ({why}); check the file and the options")
    return imported, tuple(dropped)
