"""The JSON vectors in ``tests/vectors``: one set, run by pytest here and by ``node --test`` for the browser client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent.parent / "vectors"


def load(name: str) -> Any:
    return json.loads((DIRECTORY / name).read_text(encoding="utf-8"))
