"""docs/metrics.md."""

from __future__ import annotations

from tests.support.sources import ROOT
from tidings_gateway.telemetry.manual import markdown


def test_the_page_is_what_the_table_says() -> None:
    """Made anew by `python -m tidings_gateway.telemetry.manual > docs/metrics.md`."""
    assert (ROOT / "docs" / "metrics.md").read_text() == markdown()
