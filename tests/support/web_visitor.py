"""Somebody who uses the page by what is on it: follows its links and sends its forms, and counts the clicks."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx

from tests.support.web_page import PageClient, checked


@dataclass
class WebForm:
    """A form as it stands on a page: its fields with what they hold, those that must be filled in, and its buttons."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


class _Controls(HTMLParser):
    """The links and forms of a document, in their order."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.forms: list[WebForm] = []
        self._text: list[str] | None = None
        self._href = ""
        self._form: WebForm | None = None
        self._select: str | None = None
        self._option: str | None = None
        """The field of a chosen option whose value is its text."""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, value = given.get("name", ""), given.get("value", "")
        if tag == "a" and "href" in given:
            self._href, self._text = given["href"], []
        elif tag == "form":
            self._form = WebForm(given.get("action", ""), given.get("method", "get").lower())
            self.forms.append(self._form)
        elif self._form is None or not name:
            pass
        elif tag == "select":
            self._select = name
        elif tag == "textarea":
            self._form.fields[name] = ""
        elif tag == "input":
            kind = given.get("type", "text")
            if kind == "file":
                self._form.files.append(name)
            elif kind not in ("checkbox", "radio") or "checked" in given:
                self._form.fields[name] = value
        if tag == "option" and self._form is not None and self._select is not None:
            is_chosen = "selected" in given or self._select not in self._form.fields
            self._option = self._select if is_chosen else None
            if is_chosen:
                self._form.fields[self._select] = value
            if "value" in given:
                self._option = None

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._text is not None:
            self.links.append((self._href, " ".join("".join(self._text).split())))
            self._text = None
        elif tag == "form":
            self._form = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)
        if self._option is not None and self._form is not None and data.strip():
            self._form.fields[self._option], self._option = data.strip(), None


class PageVisitor:
    """Begins at the overview. Each page that is come to is well formed."""

    def __init__(self, client: PageClient) -> None:
        self._client = client
        self.clicks = 0
        self.at = ""
        self._arrive(client.get("/ui"), "/ui")

    def _arrive(self, answer: httpx.Response, path: str) -> None:
        while answer.is_redirect:
            path = urljoin(path, answer.headers["location"])
            answer = self._client.get(path.partition("#")[0])
        assert answer.status_code == 200, answer.text
        self.text = " ".join(checked(answer).text.split())
        self.at, self._controls = path, _Controls(answer.text)

    def click(self, words: str = "", to: str = "") -> "PageVisitor":
        """Follows the first link that says these words, or leads to an address that holds that."""
        found = [href for href, text in self._controls.links if words in text and to in href]
        assert found, f"no link {words!r} to {to!r} at {self.at}"
        self.clicks += 1
        path = urljoin(self.at, found[0])
        self._arrive(self._client.get(path.partition("#")[0]), path)
        return self

    def send(self, action: str, /, upload: bytes | None = None, **given: str) -> "PageVisitor":
        """Fills in the form of that action and sends it."""
        forms = [each for each in self._controls.forms if each.action.endswith(action)]
        assert forms, f"no form for {action} at {self.at}"
        form = forms[0]
        unknown = given.keys() - form.fields.keys()
        assert not unknown, f"{action} has no fields {unknown}"
        fields = form.fields | given
        self.clicks += 1
        path = urljoin(self.at, form.action)
        if form.method == "get":
            answer = self._client.client.get(path, params={name: each for name, each in fields.items() if each})
        elif upload is not None:
            sent = {"origin": "null", "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
            files = {form.files[0]: ("notes.txt", upload, "text/plain")}
            answer = self._client.client.post(path, data=fields, files=files, headers=sent)
        else:
            answer = self._client.post(path, fields)
        self._arrive(answer, urlsplit(str(answer.request.url)).path)
        return self
