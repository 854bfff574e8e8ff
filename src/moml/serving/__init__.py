"""What leaves a run: exports that need only numpy, and the removal of a person."""
