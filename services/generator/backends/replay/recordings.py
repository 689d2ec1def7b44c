"""Lookup of the recorded completion that answers a request, by sample or by prompt."""

from collections.abc import Iterable, Sequence

from services.generator.protocol import Choice, CompletionRequest, RequestError
from shared.completions import RecordedCompletion
from shared.errors import DataError
from shared.schemas import Problem, SampleId
from shared.statuses import TokenSource

CHARACTERS_PER_TOKEN = 4
# Each prompt is searched in a question.
_LONGEST_QUESTION = 256 * 1024


class Recordings:
    """Recorded completions by sample; with problems, also by the prompt they answer."""

    def __init__(
        self, completions: Iterable[RecordedCompletion], problems: Iterable[Problem] = ()
    ) -> None:
        """Index the completions.

        Raises:
            DataError: A completion cannot be used, or two different ones have the same sample.
        """
        self._by_sample: dict[tuple[str | None, str, int], RecordedCompletion] = {}
        for recorded in completions:
            self._add(recorded)
        # Keep only the prompts, because the tests of problems may be large.
        prompts = [(p.prompt.strip(), SampleId(p.dataset, p.problem_id)) for p in problems]
        # Longest first, so that a prompt is matched before one that it contains.
        self._prompts = sorted(
            (pair for pair in prompts if pair[0]), key=lambda pair: len(pair[0]), reverse=True
        )

    def __len__(self) -> int:
        return len(self._by_sample)

    def choices(self, request: CompletionRequest, request_id: str) -> list[Choice]:
        """Return the answers to a request: up to ``n``, at least one.

        Raises:
            RequestError: 404, no completion is recorded for the request.
        """
        sample = sample_of(request_id) or self._sample_by_prompt(request.question)
        found = self._recorded(sample, request.n)
        if not found:
            message = f"no completion is recorded for the sample {sample.key}"
            raise RequestError(404, message, code="completion_not_recorded")
        return [_choice(recorded, request.token_limit) for recorded in found]

    def _add(self, recorded: RecordedCompletion) -> None:
        key = (recorded.dataset or None, recorded.problem_id, recorded.sample_index)
        known = self._by_sample.setdefault(key, recorded)
        if known.completion != recorded.completion:
            raise DataError(
                f"two different completions are recorded for problem {recorded.problem_id!r}, "
                f"sample {recorded.sample_index}; number them with sample_index"
            )

    def _recorded(self, sample: SampleId, count: int) -> Sequence[RecordedCompletion]:
        found = []
        for index in range(sample.sample_index, sample.sample_index + count):
            # A completion recorded without a data set answers for any.
            for dataset in (sample.dataset, None):
                if recorded := self._by_sample.get((dataset, sample.problem_id, index)):
                    found.append(recorded)
                    break
        return found

    def _sample_by_prompt(self, question: str) -> SampleId:
        if len(question) > _LONGEST_QUESTION:
            message = (
                "cannot determine the sample: X-Request-Id does not name it, and the message is "
                f"longer than the {_LONGEST_QUESTION} characters that are searched for prompts"
            )
            raise RequestError(404, message, code="sample_unknown")
        for prompt, sample in self._prompts:
            if prompt in question:
                return sample
        message = (
            "cannot determine the sample: X-Request-Id is not <run>/<dataset>/"
            "<problem_id>/<sample_index>, and "
            + ("no known prompt is in the message" if self._prompts else "no data set is loaded")
        )
        raise RequestError(404, message, code="sample_unknown")


def sample_of(request_id: str) -> SampleId | None:
    """Parse an ``X-Request-Id`` of the form ``<run>/<sample key>``; None for any other."""
    parts = request_id.rsplit("/", 3)
    if len(parts) != 4:
        return None
    try:
        return SampleId.parse("/".join(parts[1:]))
    except ValueError:
        return None


def estimate_tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _choice(recorded: RecordedCompletion, limit: int | None) -> Choice:
    text, gen_time = recorded.completion, recorded.gen_time or 0.0
    tokens, source = recorded.output_tokens, recorded.output_tokens_from
    if tokens is None:
        tokens, source = estimate_tokens(text), TokenSource.ESTIMATE
    if limit is None or limit >= tokens:
        return Choice(text, recorded.finish_reason or "stop", tokens, gen_time, source)
    share = limit / tokens
    return Choice(text[: int(len(text) * share)], "length", limit, gen_time * share, source)
