"""Validation of the manifests in ``k8s/``: schemas of built-in and custom resources, policy."""
