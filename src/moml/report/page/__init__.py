"""`moml report`: runs as one self-contained HTML page."""
