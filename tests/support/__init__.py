"""What the tests stand on: real servers as processes, faults on the wire, an independent client, and the ledger."""
