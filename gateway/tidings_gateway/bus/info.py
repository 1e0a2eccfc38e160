"""What INFO and CLUSTER INFO say, taken apart."""

from __future__ import annotations


def info_fields(reply: object) -> dict[str, str]:
    """The `name:value` lines; none for what is no such reply, as a refusal."""
    lines = reply.decode("utf-8", "replace").splitlines() if isinstance(reply, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)
