"""What `tidings demo` runs: two gateways behind a round-robin, a worker and a page."""
