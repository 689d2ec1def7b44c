"""HumanEvalDataset: the rest of a function, or all of it, and a ``check`` that calls it."""

import re

from pydantic import BaseModel

from services.sandbox.schemas import RunCodeRequest
from services.sandbox.submit.errors import refused
from services.sandbox.submit.extraction import first_block, in_language
from services.sandbox.submit.fields import Text
from services.sandbox.submit.plans import ProgramRun
from services.sandbox.submit.records import read_record
from services.sandbox.submit.schemas import SubmitConfig, SubmitRequest

TIMEOUT = 20.0
IN_LANGUAGE = ("humaneval_python", "evoeval")

# The original's modules line by line, so that line numbers in tracebacks are the original's. Only
# numpy may be missing: programs that do without it must run.
HEADER = """\
import math
import re
import sys
import copy
import datetime
import itertools
import collections
import heapq
import statistics
import functools
import hashlib
try: import numpy, numpy as np
except ImportError: pass
import string
from typing import *
from collections import *
"""

_BODY_END = re.compile(r"\n(?=\S)")


class Record(BaseModel):
    """``prompt`` is needed only to complete it."""

    test: Text
    entry_point: Text
    prompt: Text | None = None


def plan(request: SubmitRequest) -> ProgramRun:
    """The prompt and its completion; or, with ``extra.is_freeform``, the completion's code.

    Source: SandboxFusion 469de08, ``sandbox/datasets/humaneval.py``. There the call of ``check``
    is left out for unregistered names, which accepts every program.

    Raises:
        SubmitError: 400.
    """
    if "tests" in (request.config.provided_data or ()):
        raise refused("the record: those with 'tests' (MultiPL-E) are not served")
    record = read_record(request, Record)
    if request.config.extra.get("is_freeform"):
        code = head = freeform(request)
    elif record.prompt is None:
        raise refused("the record: prompt: Field required")
    else:
        code = function_body(request.completion)
        head = f"{record.prompt}\n{code}"
    program = f"{HEADER}{head}\n{record.test}\ncheck({record.entry_point})"
    return ProgramRun(program_request(program, request.config), extracted_code=code)


def program_request(code: str, config: SubmitConfig) -> RunCodeRequest:
    """A Python program with the time limits that HumanEval and EvoEval have."""
    return RunCodeRequest(
        code=code,
        language="python",
        compile_timeout=config.compile_timeout or TIMEOUT,
        run_timeout=config.run_timeout or TIMEOUT,
    )


def function_body(completion: str) -> str:
    """The completion up to the first line, but for the very first, that is not indented."""
    return _BODY_END.split(completion, maxsplit=1)[0]


def freeform(request: SubmitRequest) -> str:
    if request.dataset in IN_LANGUAGE:
        return in_language(request.completion, "python")
    return function_body(first_block(request.completion, "python"))
