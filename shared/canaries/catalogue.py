"""Sets of canaries by profile, with limits scaled from the run's config; and their manifest."""

import hashlib
import json
from functools import cache

from shared.canaries.builder import Builder
from shared.canaries.expectation import Canary
from shared.canaries.functions import function_canaries
from shared.canaries.profile import CanaryProfile
from shared.canaries.stdio import cpp_canaries, program_canaries
from shared.config import Config

_KINDS = (("python", False), ("python", True), ("cpp", False))


def canaries(profile: CanaryProfile, config: Config, seed: str) -> list[Canary]:
    """The canaries of a round in their order; the seed chooses all names and numbers.

    The first and the last ones are the same program with other inputs, so that results which are
    remembered by the program alone, and files that it left behind, come to light.
    """
    build = Builder(profile, config, seed)
    if profile.language == "cpp":
        return list(cpp_canaries(build))
    return list((function_canaries if profile.functions else program_canaries)(build))


@cache
def manifest() -> str:
    """Hex SHA-256 over all canaries and their expectations, under the default limits."""
    parts = []
    for method in ("batch", "submit", "compute_score"):
        for language, functions in _KINDS:
            found = canaries(CanaryProfile(method, language, functions), Config(), "manifest")
            parts += [_document(canary) for canary in found]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _document(canary: Canary) -> list[object]:
    cases = [[sorted(c.codes), c.detail, c.silent, c.fault] for c in canary.cases]
    texts = [canary.name, canary.problem.ground_truth, canary.completion, canary.fault]
    return [*texts, repr(canary.limits), sorted(canary.statuses), cases]
