"""`tidings check`: what is wrong with this Redis, for this use. `asking.py` asks; the rest judges, and is pure."""
