"""The pure core: no asyncio, redis, starlette, clock or randomness; time and random numbers are arguments."""
