"""Preambles: the imports and recursion limit that LiveCodeBench, verl and APPS give an answer.

Sources: ``prime_code/utils.py`` and ``sandbox_fusion/utils.py`` of verl 0.9.1, ``import_string`` of
``lcb_runner/evaluation/testing_util.py`` of LiveCodeBench, ``run_test`` of ``eval/testing_util.py``
of APPS. How results compare is in ``shared.harness.function_calls``.
"""

import re

from shared.extraction import future_imports
from shared.statuses import Convention

# Modules that verl and LiveCodeBench import for the answer, in their order.
_STAR = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
    *("builtins", "typing"),
)
IMPORTS = "".join(
    [f"from {module} import *\n" for module in _STAR]
    + [f"import {module}\n" for module in _STAR[:-2]]
)
_APPS = """\
import sys, time, itertools, collections, math, fractions, random, heapq
from itertools import accumulate, product, permutations, combinations
from collections import Counter, OrderedDict, deque, defaultdict, ChainMap
from functools import lru_cache
from math import sqrt, sin, cos, tan, ceil, fabs, floor, gcd, exp, log, log2
from typing import List, Tuple
from heapq import *
"""

_PREAMBLES = {
    Convention.VERL: IMPORTS,
    Convention.LIVECODEBENCH: f"{IMPORTS}sys.setrecursionlimit(50000)\n",
    Convention.APPS: _APPS,
}


def preamble(convention: Convention, answer: str) -> str:
    """Return what a convention puts before an answer; numpy, which loads slowly, if it is used."""
    numpy = convention is Convention.APPS and re.search(r"\bnp\b", answer)
    return _PREAMBLES[convention] + ("import numpy as np\n" if numpy else "")


def with_preamble(program: str, convention: Convention | None) -> str:
    """Put the imports and limits of a convention before a program; verl sets none for programs."""
    if convention in (None, Convention.VERL):
        return program
    futures, program = future_imports(program)  # they must come first
    return "\n".join([*futures, preamble(convention, program) + program])
