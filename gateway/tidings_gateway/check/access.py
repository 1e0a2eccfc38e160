"""Access: who can listen on the way, what our user may do, and what it need not."""

from __future__ import annotations

from collections.abc import Iterator

from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, fail, note, ok, warn
from tidings_gateway.check.permissions import FOR_PUBLISHERS, acl_line


def judge(facts: Facts, prefix: str, *, sharded: bool = False) -> Iterator[Finding]:
    yield from _way(facts)
    needed = [name for name in facts.refused if name not in FOR_PUBLISHERS]
    remedy = acl_line(prefix, facts.user, new=False, sharded=sharded)
    if needed:
        missing = ", ".join(name.upper().replace("|", " ") for name in facts.refused)
        words = f"The Redis user {facts.user} may not: {missing}. Redis says: {facts.refused[needed[0]]}."
        yield fail("permissions", words, remedy)
    elif facts.refused:
        missing = ", ".join(name.upper() for name in facts.refused)
        words = (
            f"The Redis user {facts.user} may not: {missing}. Publishers need it for min_replicas and with Sentinels."
        )
        yield note("permissions", words, remedy)
    elif facts.info or facts.pings_ms:
        yield ok("permissions", f"The Redis user {facts.user} may do all that Tidings needs.")
    if facts.too_much:
        words = f"It may also do what Tidings never does: {', '.join(facts.too_much)}. A stolen password could, too."
        yield note(
            "privileges", words, f"{acl_line(prefix, sharded=sharded)}; and its name and password in TIDINGS_REDIS_URL"
        )
    if facts.unseen:
        asked = ", ".join(facts.unseen)
        words = f"Not shown to this user, or by this provider: {asked}. What depends on it was not judged."
        yield note("not seen", words, "run this check once as a user who may (see its NOTE lines there)")


def _way(facts: Facts) -> Iterator[Finding]:
    if facts.local:
        return
    if not facts.tls:
        words = f"Plain text to {facts.at}: whoever is on the way reads every event, and the password."
        yield warn("encryption", words, "rediss:// in TIDINGS_REDIS_URL, and tls-port in the conf file")
    elif not facts.verified:
        words = "TLS without looking at the certificate: whoever is on the way can be Redis."
        yield warn(
            "encryption", words, "take ssl_cert_reqs and ssl_check_hostname out of TIDINGS_REDIS_URL; ssl_ca_certs"
        )
    else:
        yield ok("encryption", "TLS, and the certificate is checked.")
    if not facts.password and not facts.refused:
        words = f"{facts.at} wants no password: whoever reaches it has everything."
        yield warn("password", words, f"{acl_line('PREFIX')}; then ACL SETUSER default off")
