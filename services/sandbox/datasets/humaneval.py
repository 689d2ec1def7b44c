"""HumanEvalDataset: a function (its body or all of it), and a ``check`` that calls it."""

import re

from pydantic import BaseModel

from services.sandbox.datasets.base import (
    ProgramRun,
    bad_request,
    read_record,
)
from services.sandbox.datasets.extraction import first_block, in_language
from services.sandbox.schemas import (
    RunCodeRequest,
    SubmitRequest,
    Text,
)

TIMEOUT = 20.0

# The original's imports line by line, so that line numbers in tracebacks are the original's. numpy,
# which loads slowly, is for programs that name it.
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
import numpy
import numpy as np
import string
from typing import *
from collections import *
"""

_NUMPY = "import numpy\nimport numpy as np\n"
_NAMES_NUMPY = re.compile(r"\b(np|numpy)\b")
_BODY_END = re.compile(r"\n(?=\S)")


class _Tests(BaseModel):
    """Columns with the tests; ``prompt`` is required unless the answer is freeform."""

    test: Text
    entry_point: Text
    prompt: Text | None = None


def plan(request: SubmitRequest) -> ProgramRun:
    """Plan a program: prompt and completion or, with ``extra.is_freeform``, the extracted code.

    Source: SandboxFusion 469de08, ``sandbox/datasets/humaneval.py``. The original does not call
    ``check`` for unregistered names, and so accepts every program.

    Raises:
        DatasetError: 400.
    """
    config = request.config
    if "tests" in (config.provided_data or ()):
        raise bad_request("the record: records with 'tests' (MultiPL-E) are not supported")
    record = read_record(request, _Tests)
    if config.extra.get("is_freeform"):
        code = head = _freeform_answer(request)
    elif record.prompt is None:
        raise bad_request("the record: prompt: Field required")
    else:
        code = function_body(request.completion)
        head = f"{record.prompt}\n{code}"
    code_and_tests = f"{head}\n{record.test}\ncheck({record.entry_point})"
    numpy = _NAMES_NUMPY.search(code_and_tests)
    header = HEADER if numpy else HEADER.replace(_NUMPY, "\n\n")
    program = RunCodeRequest(
        code=f"{header}{code_and_tests}",
        language="python",
        compile_timeout=config.compile_timeout or TIMEOUT,
        run_timeout=config.run_timeout or TIMEOUT,
    )
    return ProgramRun(program, extracted_code=code)


def function_body(completion: str) -> str:
    """Return the completion up to its first unindented line, not counting line 1."""
    return _BODY_END.split(completion, maxsplit=1)[0]


def _freeform_answer(request: SubmitRequest) -> str:
    if request.dataset == "humaneval_python":
        return in_language(request.completion, "python")
    return function_body(first_block(request.completion, "python"))
