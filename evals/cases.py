"""Cases: a conversation or documents, a question, what must reach the model to answer it, and budgets in tokens.

Files hold one JSON object a line, `t` says what: `history` (id, messages), `doc` (id, title, content, source,
attachment_type; or filename, file_data in base64),
`case` (id, kind, question, evidence, budgets; history, extra, no_final, final_parts; or docs, mode).
"""

import base64
import functools
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.documents.document import ReadOptions, read
from gateway.documents.file_reader import stored_document

Json = dict[str, Any]
MODES = ("attachments", "file_part", "text_part")
SYSTEM = {"role": "system", "content": "Answer from the documents, and say which passage says so."}


@dataclass(frozen=True)
class Case:
    """`evidence` are texts, or a key and a value that must stand near each other (`key`, `val`, `field`, `within`)."""

    identity: str
    suite: str
    kind: str
    question: str
    evidence: list[Json]
    budgets: list[int]
    body: Json = field(repr=False)
    """The request but for model and options: `messages`, and `attachments` where the documents are those."""

    @property
    def messages(self) -> list[Json]:
        messages: list[Json] = self.body["messages"]
        return messages

    def flat(self) -> list[Json]:
        """Everything as messages, for those who know nothing of attachments."""
        documents = [
            {"role": "user", "content": f"Document: {a.get('title') or a.get('filename') or ''}\n\n{_text(a)}"}
            for a in self.body.get("attachments") or ()
        ]
        return [*self.messages[:-1], *documents, *self.messages[-1:]] if documents else self.messages


def _text(attached: Json) -> str:
    """What a document says; of a file what its reader makes of it, so that baselines begin with the same text."""
    content = attached.get("content")
    return content if isinstance(content, str) else _read(attached["filename"], attached["file_data"])


@functools.cache
def _read(filename: str, data: str) -> str:
    options = ReadOptions(ocr=True)
    return read(stored_document(filename, "", base64.b64decode(data)), options).text


def load(folder: Path) -> Iterator[Case]:
    """The cases of all `SUITE….jsonl` and `SUITE….jsonl.gz` in a folder, by name."""
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            raw = path.read_bytes()
            text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
            yield from parse((json.loads(line) for line in text.split("\n") if line.strip()), path.name.split(".")[0])


def parse(objects: Iterable[Json], suite: str) -> list[Case]:
    """Cases with what they refer to put in."""
    histories: dict[str, list[Json]] = {}
    documents: dict[str, Json] = {}
    found: list[Json] = []
    for each in objects:
        if each["t"] == "history":
            histories[each["id"]] = each["messages"]
        elif each["t"] == "doc":
            documents[each["id"]] = each
        else:
            found.append(each)
    return [_case(each, histories, documents, suite) for each in found]


def _case(case: Json, histories: dict[str, list[Json]], documents: dict[str, Json], suite: str) -> Case:
    question = case["question"]
    body: Json
    if case.get("history") is not None:
        messages = [*histories[case["history"]], *(case.get("extra") or ())]
        if not case.get("no_final"):
            parts = case.get("final_parts")
            content = [{"type": "text", "text": question}, *parts] if parts else question
            messages = [*messages, {"role": "user", "content": content}]
        body = {"messages": messages}
    else:
        body = _with_documents(question, [documents[name] for name in case["docs"]], case["mode"])
    name = str(case["id"])
    return Case(name, case.get("suite") or suite, case["kind"], question, case["evidence"], case["budgets"], body)


def _with_documents(question: str, documents: list[Json], mode: str) -> Json:
    asked = {"type": "text", "text": question}
    if mode == "attachments":
        names = ("content", "title", "source", "attachment_type", "filename", "file_data")
        attached = [{name: d[name] for name in names if d.get(name) is not None} for d in documents]
        return {"messages": [SYSTEM, {"role": "user", "content": question}], "attachments": attached}
    parts = [_file(d) if mode == "file_part" else _pasted(d) for d in documents]
    return {"messages": [SYSTEM, {"role": "user", "content": [*parts, asked]}]}


def _file(document: Json) -> Json:
    media = document.get("attachment_type") or "text/plain"
    ending = ".md" if "markdown" in media else ".txt"
    data = base64.b64encode(document["content"].encode()).decode()
    file = {"filename": document["title"] + ending, "file_data": f"data:{media};base64,{data}"}
    return {"type": "file", "file": file}


def _pasted(document: Json) -> Json:
    return {"type": "text", "text": f'<document title="{document["title"]}">\n{document["content"]}\n</document>'}
