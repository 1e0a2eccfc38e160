"""The whole thing under constant damage: cut connections, killed and drained gateways, and a ledger at the end."""
