"""PFLlib's benchmark, recomputed: its splits, under its own protocol and a strict one."""
