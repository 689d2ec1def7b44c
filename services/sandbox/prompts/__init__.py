"""SandboxFusion's ``/get_prompts`` and ``/get_prompt_by_id``: what a model is asked.

A writer per dataset class makes a prompt of a record; the records are sent along, or come from
the server's tables.
"""
