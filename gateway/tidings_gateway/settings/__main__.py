"""`python -m tidings_gateway.settings > docs/settings.md`"""

from __future__ import annotations

import sys

from tidings_gateway.settings.document import markdown

if __name__ == "__main__":
    sys.stdout.write(markdown())
