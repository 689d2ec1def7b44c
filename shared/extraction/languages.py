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

_OTHER_LABELS = frozenset(
    {"text", "txt", "plaintext", "plain", "output", "input", "console", "terminal", "json", "yaml",
     "yml", "xml", "html", "css", "toml", "ini", "diff", "patch", "markdown", "md", "latex", "tex",
     "c", "objective-c", "scala", "lua", "php", "r", "swift", "dart", "haskell", "elixir", "math",
     "powershell", "bat", "dockerfile", "makefile", "mermaid", "zsh", "pycon", "python-repl", "csv",
     "pseudocode", "none", "shell-session", "sample", "example", "code", "solution", "answer",
     "tool_code", "tool_outputs"}
)  # fmt: skip
_KNOWN_LABELS = _OTHER_LABELS.union(*_LABELS.values())
_EXTENSION = re.compile(r"[\w./\\-]*\.(\w{1,4})\Z")


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
        return label in self.labels or _plain(label) in self.labels


def language_of(name: str) -> Language:
    """Find a language by SandboxFusion's name; the label of an unknown one is its name."""
    key = name.lower()
    return Language(_LABELS.get(key, frozenset({key})))


def is_known_label(label: str) -> bool:
    """Whether a word in lower case behind a fence names a language or a kind of text."""
    return label in _KNOWN_LABELS or _plain(label) in _KNOWN_LABELS


def _plain(label: str) -> str:
    """Remove a version; a file name stands for its extension."""
    file = _EXTENSION.match(label)
    if file and file[1] in _KNOWN_LABELS:
        return file[1]
    return label.rstrip("0123456789.-_")
