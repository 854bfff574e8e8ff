"""Configurations: frozen dataclasses, TOML files, and the problem that they describe."""
