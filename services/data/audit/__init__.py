"""The audit report: what was prepared, what was found, and how to come to the same again."""
