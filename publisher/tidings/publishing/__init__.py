"""How an event gets from a caller to a log: a plan that is pure, wires that know Redis and HTTP, and thin shells."""
