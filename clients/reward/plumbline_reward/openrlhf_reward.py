"""OpenRLHF: a file for ``--remote_rm_url`` (``--reward.remote_url`` in newer versions).

OpenRLHF wants its path. It loads the file by itself and calls :func:`reward_func` in threads, with
one sample each; they share requests.
"""

import unicodedata
from collections.abc import Sequence

from plumbline_reward.client import Client
from plumbline_reward.errors import RefusedError
from plumbline_reward.rows import judged_item, without_special_tokens

_TAIL = 64


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[object], **_: object
) -> dict[str, object]:
    """Score responses, with settings from the environment.

    A query is prompt and response of a sample, with special tokens; a label is a reference or
    inline tests (``--label_key``). Returns tensors of shape (samples,): ``rewards`` by the rule in
    ``PLUMBLINE_REWARD_SCORE``, ``scores`` (1.0 if accepted) for dynamic filtering, ``extra_logs``.

    Raises:
        RefusedError: The service refuses a sample, or its query does not begin with its prompt.
        NotJudgedError: A sample was not judged in time. OpenRLHF logs it and gives no reward.
    """
    import torch

    if not len(queries) == len(prompts) == len(labels):
        raise RefusedError(f"{len(queries)} queries, {len(prompts)} prompts, {len(labels)} labels")
    items = [
        judged_item(label, response_of(query, prompt))
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    verdicts = [verdict for verdict in Client(on_unjudged="raise").score(items) if verdict]
    accepted = torch.tensor([float(verdict.accepted) for verdict in verdicts])
    return {
        "rewards": torch.tensor([verdict.score for verdict in verdicts]),
        "scores": accepted,
        "extra_logs": {
            "accepted": accepted,
            "pass_ratio": torch.tensor([verdict.pass_ratio for verdict in verdicts]),
            "judge_seconds": torch.tensor([verdict.judge_seconds for verdict in verdicts]),
        },
    }


def response_of(query: str, prompt: str) -> str:
    """Return the response in a query, without the special tokens at its end.

    A long prompt may have lost its beginning in the query.

    Raises:
        RefusedError: The query does not begin with the prompt or an end of it.
    """
    if not query.startswith(prompt):  # Qwen's tokenizer composes characters
        prompt = unicodedata.normalize("NFC", prompt)
    ends = [len(prompt)] if query.startswith(prompt) else []
    tail, start = prompt[-_TAIL:], -1
    if not ends and len(prompt) > _TAIL:
        while (start := query.find(tail, start + 1, len(prompt))) >= 0:
            if prompt.endswith(query[: start + _TAIL]):
                ends.append(start + _TAIL)
    if not ends:
        raise RefusedError("a query does not begin with its prompt")
    return without_special_tokens(query[ends[-1] :])
