"""Canaries: programs with known verdicts that show whether a sandbox judges as it must.

``catalogue`` has the sets, ``programs`` their sources, ``expectation`` what each must lead to,
``record`` the results in the ledger and in ``run.json``.
"""
