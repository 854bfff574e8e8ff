"""Random kills, full disks, damaged files, jumping clocks and second processes; see `run.py`."""
