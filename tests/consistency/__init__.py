"""What the library does for fixed seeds, recorded, and held to."""
