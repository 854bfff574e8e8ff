"""Sine regression: the paper's first table, its search, and the demo."""
