"""nginx.conf: nginx takes it, and every line of it has a reason."""

from __future__ import annotations

import shutil
import subprocess

from tests.support.nginx import CONF, NginxProcess, needs_nginx


@needs_nginx()
def test_nginx_takes_it() -> None:
    """`nginx -t` of the file, with other addresses and places only."""
    nginx = NginxProcess([1, 2])
    try:
        done = subprocess.run(nginx.command("-t"), capture_output=True, text=True, timeout=20)
    finally:
        shutil.rmtree(nginx.directory)
    assert done.returncode == 0, done.stderr
    warnings = [
        line for line in done.stderr.splitlines() if "[" in line and "exceed open file resource limit" not in line
    ]
    assert warnings == []


def test_every_group_of_lines_has_a_reason() -> None:
    """Lines that stand together stand below a comment, except what only opens or closes a block."""
    unexplained = []
    for paragraph in CONF.read_text().split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        while lines and lines[0].endswith("{"):
            lines.pop(0)
        directives = [line for line in lines if line.strip("} ") and not line.startswith("proxy_pass")]
        if directives and "#" not in paragraph:
            unexplained.append(paragraph)
    assert unexplained == []
