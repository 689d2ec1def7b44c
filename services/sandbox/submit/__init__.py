"""SandboxFusion's ``/submit``: a completion and its record in, a verdict out.

A planner per dataset class turns the request into programs to run, without running anything;
``judging`` runs them like requests to ``/run_code``.
"""
