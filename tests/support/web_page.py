"""The page `/ui` as a browser without scripts has it: cookies, forms with their tokens, well-formed HTML."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from html.parser import HTMLParser
from typing import Self

import httpx

VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"))
SECURE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every answer of the page."""


class WebPage(HTMLParser):
    """A document, parsed. `faults` says what is wrong with it: tags that are not closed or nested, ids that stand
    twice, what the policy would not run, and what a screen reader could not make sense of."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.tokens: list[str] = []
        self.amounts: list[Decimal] = []
        """Of money, with all digits that its hover has."""
        self.text = ""
        self._open: list[str] = []
        self._ids: Counter[str] = Counter()
        self._named: list[str] = []
        self._labels: list[str] = []
        self.feed(document)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]
        self.faults += [f"id {name!r} stands twice" for name, times in self._ids.items() if times > 1]
        self.faults += [f"no label for {name!r}" for name in self._named if name not in self._labels]
        for tag in ("html", "head", "body", "title", "h1", "main"):
            if self.tags[tag] != 1:
                self.faults.append(f"{self.tags[tag]} of <{tag}>")
        if self.tags["table"] != self.tags["caption"]:
            self.faults.append("a table without caption")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "title" or "svg" not in self._open:  # a picture's parts have titles of their own
            self.tags[tag] += 1
        if tag not in VOID:
            self._open.append(tag)
        self._check(tag, given)
        if (name := given.get("id")) is not None:
            self._ids[name] += 1
        if tag == "a" and (link := given.get("href")) is not None:
            self.links.append(link)
        if tag == "data" and (amount := given.get("value")) is not None:
            self.amounts.append(Decimal(amount))
        if given.get("name") == "csrf":
            self.tokens.append(given.get("value") or "")
        if tag == "label" and (target := given.get("for")) is not None:
            self._labels.append(target)
        if tag in ("input", "select", "textarea") and given.get("type") != "hidden" and "label" not in self._open:
            self._named.append(str(given.get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> within {self._open[-3:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] in ("script", "style") and data.strip():
            self.faults.append(f"<{self._open[-1]}> with content")

    def _check(self, tag: str, given: Mapping[str, str | None]) -> None:
        for name, value in given.items():
            if name == "style" or name.startswith("on"):
                self.faults.append(f"<{tag} {name}>")
            if name in ("href", "src", "action") and not (value or "").startswith(("/ui", "#", "?")):
                self.faults.append(f"<{tag} {name}={value}>")
        if tag == "th" and "scope" not in given:
            self.faults.append("<th> without scope")
        if tag == "img" and "alt" not in given:
            self.faults.append("<img> without alt")
        if tag == "html" and not given.get("lang"):
            self.faults.append("<html> without lang")


class PageClient:
    """A browser's session with a gateway's page."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=30, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def get(self, path: str, **headers: str) -> httpx.Response:
        """One answer; no redirect is followed. Names of headers have `_` for `-`."""
        sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return self.client.get(path, headers=sent)

    def page(self, path: str) -> WebPage:
        """A page that is there and well formed."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return checked(answer)

    def token(self, path: str) -> str:
        """What the forms of a page hold."""
        return WebPage(self.get(path).text).tokens[0]

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> httpx.Response:
        """Sends a form as a browser does whose page tells no referrer."""
        sent = {"origin": "null", "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, data=dict(fields), headers={name: value for name, value in sent.items() if value})

    def log_in(self, key: str, path: str = "/ui") -> httpx.Response:
        """Opens the login, fills it in and sends it."""
        return self.post("/ui/login", {"csrf": self.token(f"/ui/login?next={path}"), "key": key, "next": path})


def checked(answer: httpx.Response) -> WebPage:
    """An answer of the page, after a look at its headers and its HTML."""
    assert {name: answer.headers.get(name) for name in SECURE_HEADERS} == SECURE_HEADERS
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"].startswith("req_")
    found = WebPage(answer.text)
    assert not found.faults, found.faults
    assert found.text.count(answer.headers["x-request-id"]) >= 1
    return found


Visits = Callable[[str], PageClient]


@contextmanager
def visits(url: str) -> Iterator[Visits]:
    """What opens the pages for the holder of a key, logged in."""
    with ExitStack() as ends:

        def opened(key: str) -> PageClient:
            client = ends.enter_context(PageClient(url))
            assert client.log_in(key).status_code == 303
            return client

        yield opened
