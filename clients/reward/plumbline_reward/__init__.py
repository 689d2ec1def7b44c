"""Plumbline's verdicts as reward and as tool for trainers.

A wrong completion gets 0. One that could not be judged gets no number: the call raises.

================  ===============================================================================
verl              ``reward.custom_reward_function.path=pkg://plumbline_reward``
TRL               ``GRPOTrainer(reward_funcs=plumbline_reward.reward_func, ...)``
OpenRLHF          ``plumbline_reward.openrlhf_reward``
slime, AReaL,     ``plumbline_reward.trainers``
verifiers
your own code     ``plumbline_reward.score(items)``, ``plumbline_reward.Client``
================  ===============================================================================
"""

from plumbline_reward.client import Client, run, score
from plumbline_reward.errors import NotJudgedError, RefusedError, RewardError
from plumbline_reward.responses import ProgramResult, Verdict
from plumbline_reward.trainers import make_reward_func, reward_func
from plumbline_reward.verl_reward import compute_score, compute_score_sync
from plumbline_reward.version import VERSION

__all__ = [
    "Client",
    "NotJudgedError",
    "ProgramResult",
    "RefusedError",
    "RewardError",
    "Verdict",
    "compute_score",
    "compute_score_sync",
    "make_reward_func",
    "reward_func",
    "run",
    "score",
]
__version__ = VERSION
