"""The Tidings gateway: WebSockets in front, one Redis log per user behind. See docs/DESIGN.md for the house."""
