"""Who owns which rows: partitions of a data set over clients."""
