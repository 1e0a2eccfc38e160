"""INFO, taken apart."""

from __future__ import annotations

import hiredis

from tidings_gateway.bus.info import info_fields


def test_lines_with_names_are_fields() -> None:
    """Headings and empty lines are not; a value may hold colons and bytes that are no text."""
    reply = b"# Server\r\nrun_id:abc\r\n\r\nlisteners:a:1,b:2\r\nodd:\xff\r\n"
    assert info_fields(reply) == {"run_id": "abc", "listeners": "a:1,b:2", "odd": "\ufffd"}


def test_what_is_no_reply_has_no_fields() -> None:
    """A refusal, or nothing."""
    assert info_fields(hiredis.ReplyError("NOPERM")) == info_fields(None) == info_fields(b"") == {}
