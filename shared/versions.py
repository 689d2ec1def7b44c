"""Provenance of the code: versions of installed packages, and the commit of the checkout."""

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

COMMIT = "PLUMBLINE_GIT_COMMIT"
"""Variable with the commit that an image was built from."""
IMAGES = "PLUMBLINE_IMAGES"
"""Variable with the images of the stack."""


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of the given packages by name; missing packages are left out."""
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def release() -> str:
    """Plumbline's own version; ``unknown`` for a checkout that is not installed."""
    return versions_of(["plumbline"]).get("plumbline", "unknown")


def git_commit() -> str | None:
    """Commit of the checkout that this code runs from, with ``-dirty`` if it has changes.

    In an image, ``PLUMBLINE_GIT_COMMIT`` is the commit that the image was built from. None if
    unknown.
    """
    if commit := os.environ.get(COMMIT):
        return commit
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
