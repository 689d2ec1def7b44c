"""Texts as words and n-grams, the same for every comparison."""
