"""What the process that talks to W&B is told, and what it says when it has ended well."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class WandbJob(_Message):
    """One run's results.

    Attributes:
        mode: Whether to upload.
        project: W&B's project.
        entity: Its owner; None for the key's own.
        name: The W&B run's name.
        run_id: The W&B run's id: the same run published again is the same there.
        folder: The run's output folder, in which W&B makes its own.
        config: The resolved config.
        metrics: By key.
        artifact: Name of the W&B artifact with the files.
        files: Name of each within the artifact, and where it is.
        qa_logs: Those of the files that are QA logs.
    """

    mode: Literal["online", "offline"]
    project: str
    entity: str | None
    name: str
    run_id: str
    folder: str
    config: dict[str, Any]
    metrics: dict[str, float]
    artifact: str
    files: dict[str, str]
    qa_logs: list[str]


class WandbDone(_Message):
    """``path``: the folder of an offline run's files. ``url``: an online run's page."""

    version: str
    path: str | None
    url: str | None
