"""The ways to judge an answer, one module each."""
