"""Image data sets in their publishers' files: find, read, check, cache and download them."""
