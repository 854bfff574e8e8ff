"""`moml reproduce`: the tables of the paper and our own, a command each."""
