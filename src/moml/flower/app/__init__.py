"""Flower's client and server apps: the simulator's own client updates as messages."""
