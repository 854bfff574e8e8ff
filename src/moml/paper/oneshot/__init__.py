"""One-shot classification: the paper's second table."""
