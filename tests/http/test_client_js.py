"""/tidings.js and what it imports: the client that fits this gateway."""

from __future__ import annotations

import re

import pytest

from tests.http.conftest import Door
from tidings_gateway.assets import client_files
from tidings_gateway.http.client_js import matches


async def test_the_client_is_served_as_a_module_to_any_page(door: Door) -> None:
    """The type a browser insists on, and CORS, since modules of other origins are fetched with it."""
    answer = await door.client.get("/tidings.js", headers={"origin": "https://anywhere.example"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == client_files()["tidings.js"].body


async def test_every_module_it_imports_is_served(door: Door) -> None:
    """A client whose second file is missing is no client."""
    seen, todo = set(), ["tidings.js"]
    while todo:
        name = todo.pop()
        seen.add(name)
        answer = await door.client.get(f"/{name}")
        assert answer.status_code == 200, name
        found = re.findall(r"""(?:from|import)\s*["']\./([\w.-]+)["']""", answer.text)
        todo += [other for other in found if other not in seen]


async def test_its_types_are_served_beside_it(door: Door) -> None:
    """As plain text, which is what they are to a browser; editors and build tools fetch them."""
    answer = await door.client.get("/tidings.d.ts")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "export class Tidings " in answer.text


async def test_it_is_cached_and_asked_for_again_cheaply(door: Door) -> None:
    """A page keeps it for minutes, then asks with its ETag."""
    first = await door.client.get("/tidings.js")
    assert re.fullmatch(r"public, max-age=\d+", first.headers["cache-control"])
    again = await door.client.get("/tidings.js", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("header", "same"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("", False), ("a", False)],
)
def test_etags_are_compared_weakly(header: str, same: bool) -> None:
    """RFC 9110 section 13.1.2: a proxy that compresses makes a strong tag weak."""
    assert matches(header, '"a"') is same
