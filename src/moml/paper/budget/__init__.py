"""Equal samples: a small K with memory against a larger K without; the regret of beta = auto."""
