"""What a designer and a screen reader would complain about, checked at three widths in two colour schemes; and that the
page's strict policy holds: no script but its own, whatever an event carries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Browser, CDPSession, Page, WebSocketRoute, expect

from tests.browser.demo_process import DemoProcess, open_page

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.may_block(reason="the demo is another process"),
]

WIDTHS = (360, 768, 1440)
PAYLOAD = '<img src=x onerror="document.title=1">'

# What the keyboard meets, in this order, at every width.
CONTROLS = [
    "Job of 3 seconds",
    "Job of 15 seconds",
    "Cut the connection",
    "Burst of 1,000",
    "Restart my gateway",
    "Freeze Redis",
    "Why did I resync?",
    "Clear what came",
    "What came",
]

# Everything in the page that shows text of its own: its colours, and whether a part of it is cut off.
LOOK = r"""
() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, at) => part * a + under[at] * (1 - a));
  const ground = (element) => {
    const own = rgba(getComputedStyle(element).backgroundColor);
    if (own[3] === 1) return own.slice(0, 3);
    return over(own, element.parentElement ? ground(element.parentElement) : [255, 255, 255]);
  };
  const light = (colour) => {
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (own === "" || element.closest(".unseen, noscript") || element.getClientRects().length === 0) continue;
    const style = getComputedStyle(element);
    const under = ground(element);
    const range = document.createRange();
    range.selectNodeContents(element);
    const [text, box] = [range.getBoundingClientRect(), element.closest(".card, .mini, .top").getBoundingClientRect()];
    found.push({
      text: own.slice(0, 40),
      contrast: contrast(over(rgba(style.color), under), under),
      cut: text.right > box.right + 1 || text.left < box.left - 1 ||
        (style.overflow !== "visible" && element.scrollWidth > element.clientWidth + 1) ||
        style.textOverflow === "ellipsis",
    });
  }
  return found;
}
"""
FOCUSED = """
() => {
  const element = document.activeElement;
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  return { outline: style.outlineStyle, width: parseFloat(style.outlineWidth), tag: element.tagName,
    height: box.height, wide: box.width, seen: box.bottom > 0 && box.top < innerHeight };
}
"""

TO_THE_TOP = "() => { const top = document.querySelector('h1'); top.tabIndex = -1; top.focus(); }"
MOVING = (
    "() => [...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).transitionDuration !== '0s').length"
)


async def fill(page: Page) -> None:
    """So that there is something of everything to look at: a job, a burst, a replay, an answer."""
    await page.locator('[data-seconds="3"]').click()
    await page.locator("#explain").click()
    await page.locator("#burst").click()
    await expect(page.locator('[data-step="burst"] .outcome')).to_contain_text("are here", timeout=20_000)
    await expect(page.locator('[data-step="job"] .outcome')).to_be_visible(timeout=15_000)


async def controls(page: Page) -> list[str]:
    """The accessible names of what Tab leads to, from the top; each must show that it has the focus."""
    names: list[str] = []
    await page.evaluate(TO_THE_TOP)
    cdp = await page.context.new_cdp_session(page)
    for _ in range(20):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(FOCUSED)
        if focused["tag"] == "BODY":
            break
        assert focused["outline"] == "solid", names
        assert focused["width"] >= 2, names
        assert focused["seen"], names
        names.append(await _name(cdp))
    await cdp.detach()
    return names


async def _name(cdp: CDPSession) -> str:
    """Of what has the focus, as an assistive technology is told it."""
    focused = await cdp.send("Runtime.evaluate", {"expression": "document.activeElement"})
    tree = await cdp.send("Accessibility.getPartialAXTree", {"objectId": focused["result"]["objectId"]})
    return str(tree["nodes"][0]["name"]["value"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_can_be_read_and_reached_at_every_width(browser: Browser, demo: DemoProcess, scheme: Any) -> None:
    """At 360, 768 and 1440 pixels: nothing runs out of the page or out of its box, every text stands out from what is
    behind it by 4.5 (WCAG AA), the keyboard reaches every control in the order of reading and shows where it is, and on
    a small screen a finger hits what it aims at (44 pixels). The page keeps to its own policy meanwhile."""
    page = await browser.new_page(color_scheme=scheme, viewport={"width": WIDTHS[-1], "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await open_page(page, demo.url)
    await fill(page)
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 740 if width == 360 else 900})
        assert await page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, width
        texts = await page.evaluate(LOOK)
        assert len(texts) > 40
        assert [text for text in texts if text["contrast"] < 4.5] == [], width
        assert [text for text in texts if text["cut"]] == [], width
        assert await controls(page) == CONTROLS, width
        if width == WIDTHS[0]:
            for button in await page.get_by_role("button").all():
                box = await button.bounding_box()
                assert box is not None
                assert min(box["height"], box["width"]) >= 44, await button.inner_text()
    assert complaints == []
    await page.close()


async def test_trouble_can_be_read_too(browser: Browser, demo: DemoProcess) -> None:
    """The states that are rare to see: cut, catching up, stopped, unready; in both schemes, by their colours."""
    for scheme in ("light", "dark"):
        page = await browser.new_page(color_scheme=scheme, viewport={"width": 768, "height": 900})
        await open_page(page, demo.url)
        await page.locator("#cut").click()
        await expect(page.locator("body")).to_have_attribute("data-state", "waiting")
        chip, verdict = page.locator("#gateways li").first, page.locator("#verdict")
        for gateway, judged in (("draining", "coming"), ("dead", "broken"), ("ready", "whole")):
            await chip.evaluate("(element, state) => { element.dataset.gateway = state; }", gateway)
            await verdict.evaluate("(element, verdict) => { element.dataset.verdict = verdict; }", judged)
            faint = [text for text in await page.evaluate(LOOK) if text["contrast"] < 4.5]
            assert faint == [], (scheme, gateway)
        await page.close()


async def test_a_screen_reader_is_told_what_matters(page: Page, demo: DemoProcess) -> None:
    """One polite live region, there from the start: the state, the end of a job and what came of a step; not the log,
    which would never stop talking. Every button is described by what it does."""
    await open_page(page, demo.url)
    regions = await page.evaluate(
        "() => [...document.querySelectorAll('[aria-live], [role=status], [role=alert], [role=log]')].map((e) => e.id)"
    )
    assert regions == ["announcer"]
    announcer = page.get_by_role("status")
    await expect(announcer).to_contain_text("Live")
    await page.locator('[data-seconds="3"]').click()
    await expect(announcer).to_contain_text("A job of 3 seconds is done.", timeout=15_000)
    await expect(announcer).to_contain_text("after it was published")
    await expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for button in await page.locator("#steps button").all():
        about = await button.get_attribute("aria-describedby")
        assert len(await page.locator(f"#{about}").inner_text()) > 40
    assert await page.locator("main > section:not([aria-labelledby])").count() == 0


async def test_the_keyboard_alone_is_enough(page: Page, demo: DemoProcess) -> None:
    """A button that is busy keeps the focus, says so, and does nothing when it is pressed again."""
    await open_page(page, demo.url)
    await page.locator("#cut").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#cut")).to_have_text("Cut the connection (6 s)")
    await expect(page.locator("#cut")).to_be_focused()
    await expect(page.locator("#cut")).to_have_attribute("aria-disabled", "true")
    await page.keyboard.press("Space")
    await page.keyboard.press("Tab")
    await expect(page.locator("#burst")).to_be_focused()


async def test_who_wants_no_motion_gets_none(browser: Browser, demo: DemoProcess) -> None:
    """prefers-reduced-motion: nothing slides."""
    page = await browser.new_page(reduced_motion="reduce")
    await open_page(page, demo.url)
    await page.locator('[data-seconds="3"]').click()
    await expect(page.locator("#jobs progress")).to_be_visible()
    assert await page.evaluate(MOVING) == 0
    await page.close()


async def test_what_an_event_carries_is_text(page: Page, demo: DemoProcess) -> None:
    """Markup in an event's type and in its data is shown as it is written, and makes no element."""

    sockets: list[WebSocketRoute] = []

    def between(socket: WebSocketRoute) -> None:
        socket.connect_to_server()  # everything is passed on, both ways
        sockets.append(socket)

    await page.route_web_socket("**/v1/ws", between)
    await open_page(page, demo.url)
    for kind in (PAYLOAD, "job.complete"):
        data = {"id": PAYLOAD, "seconds": PAYLOAD, "progress": 5}
        sockets[-1].send(json.dumps({"type": "event", "event": kind, "data": data, "time": 1}))
    await expect(page.locator("#log")).to_contain_text(PAYLOAD)
    await expect(page.locator("#jobs")).to_contain_text(PAYLOAD)
    assert await page.locator("img").count() == 0
    assert "Tidings" in await page.title()


async def test_no_script_runs_but_its_own(page: Page, demo: DemoProcess) -> None:
    """The policy refuses inline scripts, handlers and styles, should any text ever become markup."""
    await open_page(page, demo.url)
    refused = await page.evaluate(
        """async () => {
            const refused = [];
            document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "document.title = 'inline'";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend", "<p onclick='document.title = 1' style='color: red'>x</p>");
            document.body.lastElementChild.click();
            await new Promise((resolve) => setTimeout(resolve, 50));
            return refused;
        }"""
    )
    assert {"script-src-elem", "script-src-attr", "style-src-attr"} <= set(refused)
    assert "Tidings" in await page.title()
