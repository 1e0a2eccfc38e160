"""Our uvicorn: the handshake, the detached WebSocket, deadlines and the drain."""
