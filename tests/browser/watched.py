"""A page under watch: what it asks of whom, what runs in it, and how it is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

ARTIFACTS = Path(__file__).parent / "artifacts"
AXE = Path(__file__).parents[1] / "compat" / "node" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, NARROW = (1280, 900), (400, 800)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
FINDINGS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .map(v => ({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.map(n => n.html.slice(0, 200) + " " +
    n.any.concat(n.all).map(c => c.message).join("; ").slice(0, 300))}))"""
OVERFLOWING = """() => { const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1)
    .map(e => e.tagName + "." + e.className + " " + Math.round(e.getBoundingClientRect().right)).slice(0, 12); }"""


CUT = """() => [...document.querySelectorAll("main .scroll")].filter(e => e.checkVisibility()
    && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${e.innerText.slice(0, 80)}: ${e.clientWidth} of ${e.scrollWidth} pixels`)"""
CUT_HINTS = """() => [...document.querySelectorAll("main input[placeholder]")].filter(e => e.checkVisibility())
    .map(e => {
    const style = getComputedStyle(e), pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return [pen.measureText(e.placeholder).width, room, e.placeholder]; })
    .filter(([wanted, room]) => wanted > room).map(([wanted, room, text]) => `${text}: ${room} of ${wanted} pixels`)"""
CONTROLS = """() => [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, '
    + 'summary, [tabindex="0"]')].filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled)
    .map((e, n) => { e.dataset.control = n; return (e.innerText || e.name || e.id || e.tagName).trim(); })"""


@dataclass
class Watched:
    """One page in a profile of its own."""

    page: "Page"
    context: "BrowserContext"
    url: str
    asked: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    scripted: bool = True
    """Whether its scripts run."""

    def go(self, path: str) -> int:
        """Opens a path; returns the status of the answer."""
        answer = self.page.goto(self.url + path)
        return answer.status if answer is not None else 0

    def shot(self, name: str, *, full: bool = True) -> Path:
        """Keeps a picture of the page, or of what the window shows of it."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=full)
        return path

    def open_all(self) -> None:
        """Opens whatever can be opened."""
        self.page.evaluate("() => document.querySelectorAll('main details').forEach(e => { e.open = true; })")

    def scripts(self) -> list[str]:
        """The addresses of the scripts in the page; empty text for one without."""
        found: list[str] = self.page.eval_on_selector_all("script", "all => all.map(e => e.getAttribute('src') || '')")
        return found

    def assert_fits(self, name: str) -> None:
        """Looks at the page in both schemes and sizes, as it came and with all opened, and keeps pictures of it."""
        for opened in (False, True):
            if opened:
                self.open_all()
            for size in (WIDE, NARROW):
                self.page.set_viewport_size({"width": size[0], "height": size[1]})
                assert not self.overflowing()
                cut = [*self.cut_hints(), *([] if opened else self.cut())]
                assert not cut, cut
                for scheme in SCHEMES:
                    self.page.emulate_media(color_scheme=scheme)
                    if not opened:
                        self.shot(f"{name}{'-narrow' if size == NARROW else ''}{'-dark' if scheme == 'dark' else ''}")
                    assert not self.findings(), (size, scheme)

    def findings(self) -> list[dict[str, Any]]:
        """What axe-core finds."""
        self.page.evaluate(AXE.read_text("utf-8"))
        found: list[dict[str, Any]] = self.page.evaluate(FINDINGS)
        return found

    def overflowing(self) -> list[str]:
        """What is wider than the window, if the page can be scrolled sideways."""
        found: list[str] = self.page.evaluate(OVERFLOWING)
        return found

    def cut(self) -> list[str]:
        """The tables of which some columns are seen only by scrolling sideways."""
        found: list[str] = self.page.evaluate(CUT)
        return found

    def cut_hints(self) -> list[str]:
        """The hints in empty fields that do not fit into them."""
        found: list[str] = self.page.evaluate(CUT_HINTS)
        return found

    def controls(self) -> list[str]:
        """All that can be used as the page is now, in its order; `focused` says the number of one as `control`."""
        found: list[str] = self.page.evaluate(CONTROLS)
        return found

    def focused(self) -> dict[str, Any]:
        """What has the focus, and how that is shown."""
        found: dict[str, Any] = self.page.evaluate(
            """() => { const e = document.activeElement, s = getComputedStyle(e); return {tag: e.tagName,
            text: (e.innerText || e.value || "").trim(), href: e.getAttribute("href"), id: e.id,
            control: e.dataset.control ? parseInt(e.dataset.control) : null,
            outline: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== "none"}; }"""
        )
        return found

    def elsewhere(self) -> Sequence[str]:
        """What the page asked of anybody but its own server."""
        own = urlsplit(self.url).netloc
        return [each for each in self.asked if urlsplit(each).netloc != own]

    def assert_inert(self) -> None:
        """Nothing that a user or a model wrote has run, and nobody else was asked for anything."""
        assert not self.dialogs
        assert not self.elsewhere()
        assert not self.errors

    def close(self) -> None:
        """Ends the page, and notes whether a script of somebody else's has left its mark in it."""
        if self.page.evaluate("() => window.ran"):
            self.dialogs.append("a script has run")
        self.context.close()


def watched(
    browser: "Browser", url: str, *, dark: bool = False, size: tuple[int, int] = WIDE, scripts: bool = True
) -> Watched:
    """A new page of that size and colour scheme, with or without JavaScript."""
    context = browser.new_context(
        color_scheme="dark" if dark else "light",
        viewport={"width": size[0], "height": size[1]},
        java_script_enabled=scripts,
        accept_downloads=True,
    )
    found = Watched(context.new_page(), context, url, scripted=scripts)

    def opened(dialog: "Dialog") -> None:
        found.dialogs.append(dialog.message)
        dialog.dismiss()

    def said(message: "ConsoleMessage") -> None:
        own = message.location.get("url") == found.page.url and message.text.startswith("Failed to load resource")
        if message.type == "error" and not own:  # Chromium says so of a page whose status is an error's
            found.errors.append(message.text)

    context.on("request", lambda request: found.asked.append(request.url))
    found.page.on("dialog", opened)
    found.page.on("console", said)
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    found.page.set_default_timeout(60_000)
    return found
