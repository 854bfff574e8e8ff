"""The single-node methods, and what the theory says about them."""
