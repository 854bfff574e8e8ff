"""A federation of real processes on one machine: keys, processes, runs."""
