"""Recorded cases that are answered otherwise on purpose: the same names as in DIFFERENCES.md."""

DIFFERENCES: dict[str, str] = {
    "py_stdout_250k": "large-output",
    "py_stdout_1MB": "large-output",
    "py_stderr_1MB": "large-output",
    "py_env_is_inherited": "clean-environment",
    "py_files_parent_path": "confined-paths",
    "py_files_bad_base64": "error-text",
    "lang_sql_has_no_runner": "error-text",
    "raw_timeout_nan": "error-text",
    "py_memory_limit_huge": "huge-memory-limit",
    "py_memory_limit_1MB": "tiny-memory",
    "pytest_no_tests": "languages",
    "pytest_pass": "languages",
}
