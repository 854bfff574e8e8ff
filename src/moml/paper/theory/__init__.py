"""The convergence theorem as a measurement."""
