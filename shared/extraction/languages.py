"""Programming languages of SandboxFusion and the labels that models put on their code blocks."""

import re
from dataclasses import dataclass

_PYTHON = frozenset({"python", "py", "ipython", "pypy"})
_CPP = frozenset({"cpp", "c++", "cc", "cxx", "cplusplus"})
_JAVASCRIPT = frozenset({"javascript", "js", "nodejs", "node", "mjs", "cjs"})
_TYPESCRIPT = frozenset({"typescript", "ts"})
_GO = frozenset({"go", "golang"})
_JAVA = frozenset({"java"})
_BASH = frozenset({"bash", "sh", "shell"})

# SandboxFusion's names, in lower case.
_LABELS = {
    "python": _PYTHON,
    "python_gpu": _PYTHON,
    "pytest": _PYTHON | {"pytest"},
    "cpp": _CPP,
    "cuda": _CPP | {"cuda", "cu"},
    "nodejs": _JAVASCRIPT,
    "jest": _JAVASCRIPT | _TYPESCRIPT | {"jest"},
    "typescript": _TYPESCRIPT,
    "go": _GO,
    "go_test": _GO,
    "java": _JAVA,
    "junit": _JAVA | {"junit"},
    "bash": _BASH,
    "csharp": frozenset({"csharp", "c#", "cs"}),
    "d_ut": frozenset({"d", "dlang", "d_ut"}),
    "julia": frozenset({"julia", "jl"}),
    "kotlin_script": frozenset({"kotlin", "kt", "kts", "kotlin_script"}),
    "lean": frozenset({"lean", "lean4"}),
    "perl": frozenset({"perl", "pl"}),
    "racket": frozenset({"racket", "rkt"}),
    "ruby": frozenset({"ruby", "rb"}),
    "rust": frozenset({"rust", "rs"}),
    "sql": frozenset({"sql", "sqlite", "mysql", "postgresql"}),
    "verilog": frozenset({"verilog", "v", "systemverilog", "sv"}),
}

_CPP_PROGRAM = re.compile(r"^[ \t]*(?:#[ \t]*include\b|int[ \t]+main[ \t]*\()", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Language:
    """``labels`` are in lower case and without a version."""

    labels: frozenset[str]

    @property
    def is_python(self) -> bool:
        return self.labels >= _PYTHON

    @property
    def is_cpp(self) -> bool:
        return self.labels >= _CPP

    def owns(self, label: str) -> bool:
        """Whether a label in lower case, such as "python3" or "c++17", means this language."""
        return label in self.labels or label.rstrip("0123456789") in self.labels


def language_of(name: str) -> Language:
    """Find a language by SandboxFusion's name; the label of an unknown one is its name."""
    key = name.lower()
    return Language(_LABELS.get(key, frozenset({key})))


def looks_like_cpp(text: str) -> bool:
    """Whether a line of the text includes a header or begins ``main``."""
    return _CPP_PROGRAM.search(text) is not None
