"""Lookup of the recorded completion that answers a request, by its sample."""

from collections.abc import Iterable

from services.generator.protocol import RequestError
from shared.completions import RecordedCompletion
from shared.errors import DataError
from shared.schemas import SampleId


class Recordings:
    """Recorded completions by sample."""

    def __init__(self, completions: Iterable[RecordedCompletion]) -> None:
        """Index the completions.

        Raises:
            DataError: A completion cannot be used, or two different ones have the same sample.
        """
        self._by_sample: dict[tuple[str | None, str, int], RecordedCompletion] = {}
        for recorded in completions:
            key = (recorded.dataset or None, recorded.problem_id, recorded.sample_index)
            known = self._by_sample.setdefault(key, recorded)
            if known.completion != recorded.completion:
                raise DataError(
                    f"two different completions are recorded for problem {recorded.problem_id!r}, "
                    f"sample {recorded.sample_index}; number them with sample_index"
                )

    def __len__(self) -> int:
        return len(self._by_sample)

    def find(self, request_id: str) -> RecordedCompletion:
        """Return the completion of the sample that an ``X-Request-Id`` names.

        Raises:
            RequestError: 404, it names no sample, or one without a recorded completion.
        """
        sample = _sample_of(request_id)
        if sample is None:
            message = (
                "cannot determine the sample: X-Request-Id is not <run>/<dataset>/<problem_id>/"
                "<sample_index>"
            )
            raise RequestError(404, message, code="sample_unknown")
        # A completion recorded without a data set answers for any.
        for dataset in (sample.dataset, None):
            key = (dataset, sample.problem_id, sample.sample_index)
            if recorded := self._by_sample.get(key):
                return recorded
        message = f"no completion is recorded for the sample {sample.key}"
        raise RequestError(404, message, code="completion_not_recorded")


def _sample_of(request_id: str) -> SampleId | None:
    """Parse ``<run>/<sample key>``; None for anything else."""
    parts = request_id.rsplit("/", 3)
    if len(parts) != 4:
        return None
    try:
        return SampleId.parse("/".join(parts[1:]))
    except ValueError:
        return None
