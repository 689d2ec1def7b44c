"""Differences between a trainer's configuration and the protocol of a run.

A trainer's validation has to measure what the run measured, so that its step 0 is the baseline.
Its rollouts for training explore: other sampling is expected there. A configuration for generating
has neither, and samples as its rollout says.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from pydantic import JsonValue

from services.training.findings import Finding, Kind
from services.training.trainer_config import TrainerConfig
from shared.config import RULES
from shared.environment import REJUDGE
from shared.run_record import RunRecord

_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
# The trainer's leaf, the run's, what a difference means.
_LENGTHS = (
    ("data.max_prompt_length", "prompt_length", "other prompts are left out or refused"),
    (f"{_ROLLOUT}.prompt_length", "prompt_length", "the engine's context is another one"),
    ("data.max_response_length", "response_length", "answers are cut at another length"),
    (f"{_ROLLOUT}.response_length", "response_length", "answers are cut at another length"),
)
_OF_DATASETS = "judge.datasets."
_RULES = "judge.rules"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_SAMPLING = ("temperature", "top_p", "top_k", "n")


def compare(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    """Compare model, lengths, sampling, chat template, seeds and validation with a run."""
    yield from _model(trainer, run)
    yield from _lengths(trainer, run)
    yield from _sampling(trainer, run)
    yield from _chat_template(trainer, run)
    yield from _seeds(trainer, run)
    if not trainer.generates:
        yield from _validation(trainer)


def compare_judges(
    service: Mapping[str, JsonValue], run: RunRecord, datasets: Sequence[str] = ()
) -> Iterator[Finding]:
    """Compare the protocol of a reward service with the run's, by leaf of judge and sandbox.

    Args:
        service: The leaves that ``/v1/info`` reports.
        run: The run.
        datasets: The run's settings of other data sets are not compared.
    """
    leaves = run.config.protocol().leaves
    known = {
        path: value for path, value in leaves.items() if path.startswith(("judge.", "sandbox."))
    }
    for path in sorted({*known, *service}):
        # The leaf has no dot, the data set's name may.
        below = path.removeprefix(_OF_DATASETS) if path.startswith(_OF_DATASETS) else ""
        named = below.rpartition(".")[0]
        if named and datasets and named not in datasets:
            continue
        if known.get(path) != service.get(path):
            text = "the reward service judges by another protocol; start it with the run's config"
            if path == _RULES:
                text = REJUDGE
            yield Finding(Kind.DIFFERENCE, path, service.get(path), known.get(path), text)


def compare_rules(run: RunRecord) -> Iterator[Finding]:
    """Compare the present verdict rules, by which a reward service of this release judges."""
    if run.config.judge.rules != RULES:
        yield Finding(Kind.DIFFERENCE, _RULES, RULES, run.config.judge.rules, REJUDGE)


def compare_environments(service: str, run: RunRecord) -> Iterator[Finding]:
    """Compare what programs run on: the fingerprint that a service reports, and the run's.

    A service whose operator named its sandboxes has no fingerprint to compare.
    """
    known = [one.fingerprint for one in run.environments]
    if known and service not in known and _FINGERPRINT.fullmatch(service):
        subject = "the programs' Python and packages"
        yield Finding(Kind.DIFFERENCE, subject, service[:12], known[0][:12], REJUDGE)


def _model(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    config = run.config
    names = [run.model, config.generation.model, config.actor_rollout_ref.model.path]
    known = {_normalized(name) for name in names if name}
    path = trainer.text(f"{_MODEL}.path")
    if _normalized(path) not in known:
        text = "the trainer starts from another model"
        yield Finding(Kind.DIFFERENCE, f"{_MODEL}.path", path, run.served_model, text)
    rank = trainer.number(f"{_MODEL}.lora_rank") or 0
    if rank != config.actor_rollout_ref.model.lora_rank:
        text = "a new adapter does nothing at step 0; a trained one makes another model"
        theirs = config.actor_rollout_ref.model.lora_rank
        yield Finding(Kind.EXPECTED, f"{_MODEL}.lora_rank", rank, theirs, text)


def _normalized(name: str) -> str:
    return str(PurePosixPath(name))


def _lengths(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    rollout = run.config.actor_rollout_ref.rollout
    for path, name, text in _LENGTHS:
        if trainer.generates and not path.startswith(_ROLLOUT):
            continue
        ours, theirs = trainer.number(path), float(getattr(rollout, name))
        if ours != theirs:
            yield Finding(Kind.DIFFERENCE, path, ours, theirs, text)


def _sampling(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    rollout = run.config.actor_rollout_ref.rollout
    for name in _SAMPLING:
        theirs = _limit(name, float(getattr(rollout, name)))
        measuring = _ROLLOUT if trainer.generates else f"{_ROLLOUT}.val_kwargs"
        measured, exploring = (
            _limit(name, trainer.number(f"{part}.{name}")) for part in (measuring, _ROLLOUT)
        )
        if measured != theirs:
            text = f"{'it' if trainer.generates else 'validation'} samples otherwise than the run"
            yield Finding(Kind.DIFFERENCE, f"{measuring}.{name}", measured, theirs, text)
        if exploring != theirs and not trainer.generates:
            text = "training explores; validation has its own sampling"
            yield Finding(Kind.EXPECTED, f"{_ROLLOUT}.{name}", exploring, theirs, text)
    if stop := run.config.generation.stop:
        text = "verl's rollouts have no stop texts; measure the baseline without them"
        yield Finding(Kind.DIFFERENCE, "generation.stop", None, list(stop), text)


def _limit(name: str, value: float | None) -> float | None:
    """A ``top_k`` below 1 means no limit, whichever number says so."""
    return -1.0 if name == "top_k" and value is not None and value < 1 else value


def _chat_template(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    ours = trainer.text(f"{_MODEL}.custom_chat_template")
    theirs = run.config.generation.verl.chat_template
    if bool(ours) != bool(theirs):
        text = "one of the two replaces the tokenizer's chat template"
        subject = f"{_MODEL}.custom_chat_template"
        yield Finding(Kind.DIFFERENCE, subject, ours or None, theirs or None, text)
    elif ours:
        text = "both replace the tokenizer's chat template; compare the two texts"
        subject = f"{_MODEL}.custom_chat_template"
        yield Finding(Kind.EXPECTED, subject, ours, theirs, text)
    path, kwargs = "data.apply_chat_template_kwargs", run.config.data.apply_chat_template_kwargs
    if (given := trainer.get(path) or {}) != kwargs:
        text = "the chat template gets other arguments"
        yield Finding(Kind.DIFFERENCE, path, given or None, kwargs or None, text)
    if tokenizer := trainer.get("data.tokenizer"):
        text = "changes the prompts' tokens; the run had nothing of the kind"
        yield Finding(Kind.DIFFERENCE, "data.tokenizer", tokenizer, None, text)


def _seeds(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    theirs = run.seed if run.config.generation.seed is None else run.config.generation.seed
    for path in ("data.seed", f"{_ROLLOUT}.seed"):
        if trainer.get(path) != theirs:
            text = "greedy answers do not depend on it"
            yield Finding(Kind.EXPECTED, path, trainer.get(path), theirs, text)


def _validation(trainer: TrainerConfig) -> Iterator[Finding]:
    if trainer.get("trainer.val_before_train") is False:
        text = "step 0 is not validated, so nothing shows that training starts at the baseline"
        yield Finding(Kind.DIFFERENCE, "trainer.val_before_train", False, None, text)
    if (trainer.number("trainer.test_freq") or -1) < 1:
        text = "nothing is validated during training"
        value = trainer.get("trainer.test_freq")
        yield Finding(Kind.DIFFERENCE, "trainer.test_freq", value, None, text)
    if (trainer.number("data.val_max_samples") or -1) > 0:
        text = "validation takes a part of the problems"
        value = trainer.get("data.val_max_samples")
        yield Finding(Kind.DIFFERENCE, "data.val_max_samples", value, None, text)
