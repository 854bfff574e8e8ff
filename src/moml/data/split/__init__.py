"""Splits of a data set over clients: which client owns which rows."""
