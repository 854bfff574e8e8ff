"""Federated image classification: the paper's third table, and where memory pays there."""
