"""`fit`, `sweep` and `evaluate`, and the loop that they share."""
