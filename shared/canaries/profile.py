"""Profile of a sample: what decides which canaries a run needs, and under which settings."""

from dataclasses import dataclass

from shared.config import JudgeConfig
from shared.schemas import Problem, StdioTests

_NATIVE = "verl_native"


@dataclass(frozen=True, slots=True)
class CanaryProfile:
    """Method, language, and whether the tests are functions; its text is ``batch cpp programs``."""

    method: str
    language: str
    functions: bool

    @classmethod
    def of(cls, settings: JudgeConfig, problem: Problem) -> "CanaryProfile":
        """The profile of a problem's samples.

        Args:
            settings: The judge's settings for the problem's data set.
            problem: The problem.
        """
        functions = not isinstance(problem.tests, StdioTests)
        language = "python" if functions else settings.language
        return cls(_NATIVE if settings.verl_native else settings.method, language, functions)

    @classmethod
    def parse(cls, text: str) -> "CanaryProfile":
        """Parse the text of a profile.

        Raises:
            ValueError: It is not one.
        """
        method, language, kind = text.split(" ")
        return cls(method, language, kind == "functions")

    def __str__(self) -> str:
        return f"{self.method} {self.language} {'functions' if self.functions else 'programs'}"

    @property
    def supported(self) -> bool:
        """Whether there are canaries for it."""
        return self.language in ("python", "cpp")

    @property
    def strict(self) -> bool:
        """Whether the method has CPU limits, exact checkers, details and a limit of output."""
        return self.method == "batch"

    @property
    def own_judging(self) -> bool:
        """Whether SandboxFusion judges: then nothing limits memory, nor notices an early exit."""
        return self.method == "submit"

    def settings(self, judge: JudgeConfig) -> JudgeConfig:
        """The judge's settings of a run for its canaries."""
        return judge.model_copy(
            update={
                "method": "compute_score" if self.method == _NATIVE else self.method,
                "verl_native": self.method == _NATIVE,
                "language": self.language,
                "checker": None,
                "datasets": {},
                # A second run with wider limits would hide a limit that is too narrow.
                "confirm_timeouts": False,
            }
        )
