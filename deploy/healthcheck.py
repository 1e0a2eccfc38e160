"""Does the gateway of this container answer? Exit code 0 for yes, 1 for no, with the reason on standard error.

Asks `/livez`, or the path given as an argument, where TIDINGS_LISTEN and TIDINGS_BASE_PATH say. Needs nothing but
Python's standard library: the image has no curl.
"""

from __future__ import annotations

import http.client
import os
import sys

TIMEOUT_S = 2
"""Below the timeout of HEALTHCHECK, so that the reason is still said."""

_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}  # noqa: S104 - not listened on, but replaced


def main(path: str = "/livez") -> str | None:
    """What is wrong, or None."""
    host, _, port = os.environ.get("TIDINGS_LISTEN", "127.0.0.1:8080").rpartition(":")
    path = os.environ.get("TIDINGS_BASE_PATH", "") + path
    connection = http.client.HTTPConnection(_EVERY_INTERFACE.get(host, host.strip("[]")), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer on port {port}: {error}"
    finally:
        connection.close()
    return None if status == 200 else f"GET {path} on port {port}: {status}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))  # a text goes to standard error, and makes the exit code 1
