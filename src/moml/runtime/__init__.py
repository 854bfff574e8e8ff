"""Where an algorithm executes."""
