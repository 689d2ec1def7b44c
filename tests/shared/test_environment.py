"""The environment of verdicts, as a program of it prints it."""

import platform
import subprocess
import sys
from importlib.metadata import version

from shared.canaries import PROGRAM, SandboxEnvironment


def test_the_program_tells_interpreter_packages_and_processor() -> None:
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    environment = SandboxEnvironment.read("plumbline", printed.stdout)
    assert environment is not None
    assert environment.python == platform.python_version()
    assert environment.packages["pytest"] == version("pytest")
    assert environment.cpu
