"""What software something was made with."""

import platform
from collections.abc import Iterable
from importlib import metadata


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Python's version and those of the packages that are installed, by name."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
