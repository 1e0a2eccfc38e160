"""Load: locust users that behave as the browser client does, and what a reconnect storm does to them."""
