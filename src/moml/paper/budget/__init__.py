"""Equal samples, work or steps: small K with memory against larger K; the regret of beta = auto."""
