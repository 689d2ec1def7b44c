"""Recorded cases that are answered differently on purpose, named as in DIFFERENCES.md."""

DIFFERENCES: dict[str, str] = {
    "py_stdout_250k": "large-output",
    "py_stdout_1MB": "large-output",
    "py_stderr_1MB": "large-output",
    "py_env_is_inherited": "clean-environment",
    "py_files_parent_path": "confined-paths",
    "py_files_bad_base64": "error-text",
    "lang_sql_has_no_runner": "error-text",
    "raw_timeout_infinity": "bounded-numbers",
    "raw_timeout_nan": "bounded-numbers",
    "py_memory_limit_huge": "huge-memory-limit",
    "py_memory_limit_1MB": "tiny-memory",
    "pytest_no_tests": "languages",
    "pytest_pass": "languages",
    "env_no_row_in_table": "no-tables",
    "ae_exit0_hack_accepted": "datasets",
    "ae_exit0_hack_with_append_flag": "datasets",
    "ae_main_guard_and_example_removed": "datasets",
    "ae_ok": "datasets",
    "ae_wrong": "datasets",
    "he_freeform_missing_test_field": "bad-record",
    "oj_sql_sandbox_error_after_5_tries": "no-retries",
}

# Status codes that a difference has in place of the original's.
STATUS: dict[str, int] = {
    "no-tables": 400,
    "bad-record": 400,
    "datasets": 400,
    "bounded-numbers": 422,
}

# Texts inside answers that are otherwise equal: (difference, the original's, ours).
REWRITTEN: list[tuple[str, str, str]] = [
    (
        "optional-numpy",
        "import numpy\nimport numpy as np\n",
        "\n\n",
    ),
]
