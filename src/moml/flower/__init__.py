"""The same clients on real machines, under Flower."""
