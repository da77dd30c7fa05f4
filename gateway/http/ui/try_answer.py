"""A chat request of the page on its way through the chat endpoint, and what comes back in the page's own words."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gateway.base import jsons
from gateway.errors import GatewayError
from gateway.http.chat.endpoint import ChatCompletions
from gateway.http.classic.chat import DATA
from gateway.http.classic.chat import Answer as Told
from gateway.http.edge import CHAT_PATH, CLIENT, STREAM_END, ClientDisconnected, Message, event
from gateway.http.ui.page import Page
from gateway.http.ui.parts import PATH
from gateway.http.ui.rendering import number, said, usd
from gateway.models.exchange import Caller

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a bill; `href` leads to the page of what it names."""

    label: str
    text: str
    href: str | None = None


class Asked:
    """One request. `begin` and `events` for a stream, or `whole`."""

    def __init__(self, chat: ChatCompletions, page: Page, caller: Caller) -> None:
        self._chat = chat
        self._page = page
        self._caller = caller
        self._sent: asyncio.Queue[Message | None] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    async def whole(self, body: bytes) -> Told:
        """The answer.

        Raises:
            GatewayError: there is none.
        """
        pieces: list[bytes] = []

        async def sent(message: Message) -> None:
            pieces.append(message.get("body", b""))

        await self._run(body, sent)
        told = Told()
        told.add(jsons.loads_decimal(b"".join(pieces)))
        return told

    async def begin(self, body: bytes) -> None:
        """Waits until the answer begins.

        Raises:
            GatewayError: it does not.
        """
        self._running = asyncio.ensure_future(self._pushed(body))
        try:
            if await self._sent.get() is None:
                await self._running
        except BaseException:
            await self._end()
            raise

    async def events(self) -> AsyncIterator[bytes]:
        """The events of the answer: a `delta` of text each, at last the `bill` and the `conversation`; or an `error`.

        Raises:
            ClientDisconnected: the browser has left; the upstream's call is cancelled, and what came is kept.
        """
        told = Told()
        try:
            while (message := await self._sent.get()) is not None:
                if found := _events(message.get("body", b""), told):
                    yield found
            if self._running is not None:
                await self._running
        finally:
            await self._end()

    async def _pushed(self, body: bytes) -> None:
        try:
            await self._run(body, self._sent.put)
        finally:
            self._sent.put_nowait(None)

    async def _run(self, body: bytes, send: Any) -> None:
        """The chat's own scope: none of the browser's headers, and not its connection, whose writes are not ours."""
        scope = {name: value for name, value in self._page.scope.items() if name != CLIENT}
        scope |= {"method": "POST", "path": CHAT_PATH, "headers": []}
        has_come = False

        async def receive() -> Message:
            nonlocal has_come
            if has_come:
                return await self._page.receive()
            has_come = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._chat(scope, receive, send, caller=self._caller)

    async def _end(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientDisconnected, GatewayError):
                await self._running


def _events(piece: bytes, told: Told) -> bytes:
    """The events of a piece of the chat's stream, which holds whole ones, in the page's words."""
    found = b""
    for each in piece.split(b"\n\n"):
        if not each.startswith(DATA):
            continue
        if each + b"\n\n" == STREAM_END:
            rows = [{"label": row.label, "text": said(row.text), "href": row.href} for row in bill_rows(told.metadata)]
            found += event({"bill": rows, "conversation": told.conversation}) + STREAM_END
            continue
        chunk = jsons.loads_decimal(each.removeprefix(DATA))
        if "error" in chunk:
            found += each + b"\n\n"
        elif text := told.add(chunk):
            found += event({"delta": said(text)})
    return found


def bill_rows(bill: Mapping[str, Any]) -> Sequence[Row]:
    """A bill (guarantee §6) as lines for a person."""
    context = bill.get("context_utilization") or {}
    rows = [_linked("Request", "requests", bill.get("request_id"))]
    if bill.get("conversation_id"):
        rows.append(_linked("Conversation", "conversations", bill["conversation_id"]))
    rows.append(Row("Model", " → ".join(bill.get("routing_path") or [str(bill.get("model"))])))
    rows += _spent(bill)
    rows += _window(context)
    rows += [Row("Artifact", _decided(each)) for each in context.get("artifacts_processed") or ()]
    if standing := (context.get("artifacts_standing") or {}).get("count"):
        rows.append(Row("Standing", f"{standing} artifacts as decided before"))
    if warnings := context.get("warnings"):
        rows.append(Row("Warnings", ", ".join(warnings)))
    if total := (bill.get("timings_ms") or {}).get("total"):
        rows.append(Row("Time", f"{float(total) / 1000:.2f} s"))
    return rows


def _linked(label: str, kind: str, name: Any) -> Row:
    return Row(label, str(name), f"{PATH}/{kind}/{name}")


def _spent(bill: Mapping[str, Any]) -> Sequence[Row]:
    usage, cost = bill.get("usage") or {}, bill.get("cost") or {}
    prompt, completion = (number(usage.get(f"{part}_tokens")) for part in ("prompt", "completion"))
    rows = [Row("Tokens", f"{prompt} prompt + {completion} completion")]
    if cost.get("total_cost") is None:
        return [*rows, Row("Cost", "no price is known for this model")]
    estimated = ", estimated" if cost.get("estimated") else ""
    rows.append(Row("Cost", usd(Decimal(cost["total_cost"])) + estimated))
    if planning := cost.get("planning_cost"):
        rows.append(Row("of it planning", usd(Decimal(planning))))
    return rows


def _window(context: Mapping[str, Any]) -> Sequence[Row]:
    rows = [Row("Strategy", str(context["strategy"]))] if context.get("strategy") else []
    used, budget = context.get("tokens_used"), context.get("budget_tokens")
    if used is not None and budget:
        about = "about " if context.get("tokens_estimated") else ""
        rows.append(Row("Window", f"{about}{number(used)} of {number(budget)} tokens ({used / budget:.0%})"))
    if reason := context.get("planning_reason"):
        plan = "followed" if context.get("llm_planning_used") else context.get("fallback_reason") or "none"
        rows.append(Row("Planning", f"{reason}; plan: {plan}"))
    return rows


def _decided(artifact: Mapping[str, Any]) -> str:
    before, after = (number(artifact.get(f"{name}_size_chars")) for name in ("original", "processed"))
    return f"{artifact.get('source')}: {artifact.get('strategy')}, {before} → {after} characters"
