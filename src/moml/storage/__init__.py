"""Bytes on disk: the safetensors format, sealed folders, checkpoints, metrics, locks, memories.

Arrays are kept in one format (`arrays`), folders are sealed with SHA-256 (`manifest`), files are
written atomically (`moml.atomic`). Memories on disk are raw rows with checksums and an undo log.
"""
