"""Image data sets in their publishers' own files: find, fetch, read, check, cache."""
