"""Faults of Redis and of the network to it, one after the other, on a real gateway with a ledger beside it."""
