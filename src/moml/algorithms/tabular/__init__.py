"""Formulas of the table recipe: members, support summaries, plain baselines, intervals."""
