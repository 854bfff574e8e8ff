"""Bytes on disk: arrays, checkpoints, metrics, locks, memories of tasks. Nothing here trains."""
