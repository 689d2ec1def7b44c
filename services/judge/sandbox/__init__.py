"""SandboxFusion over HTTP."""

from services.judge.sandbox.api import (
    CommandResult,
    RunCode,
    RunCodeResponse,
    Submit,
    SubmitResponse,
    SubmittedTest,
    Usage,
)
from services.judge.sandbox.client import Attempts, SandboxClient, SandboxUnavailableError

__all__ = [
    "Attempts",
    "CommandResult",
    "RunCode",
    "RunCodeResponse",
    "SandboxClient",
    "SandboxUnavailableError",
    "Submit",
    "SubmitResponse",
    "SubmittedTest",
    "Usage",
]
