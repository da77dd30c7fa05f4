"""Extracts of documents in which places are marked say where they are from (guarantee §14.2)."""

import base64
import io
import re

from openpyxl import Workbook

from gateway.core.types.places import marker, sheet_marker
from tests.support.answers import chat, used, user
from tests.support.documents import text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

FILLER = "The committee met again and spoke at length about several parts of the yearly budget. " * 25
PAGES = [f"{marker('page', str(n))}\n{FILLER}" for n in range(1, 41)]
PAGES[36] += "\nThe zebrafish tank in hall C holds 412 litres."
ROWS = "\n".join(f"berth {n}\t{n * 7}" for n in range(600))
SHEET = f"{sheet_marker('Berths', 1, 'B', 601)}\nname\tdepth\n{ROWS}\n\n"
SHEET += f"{sheet_marker('Tides', 1, 'B', 601)}\nname\th\n{ROWS}"


def ask(gateway: GatewayProcess, upstream: MockUpstream, document: str, question: str) -> str:
    """What was forwarded for a question beside a document, at a budget of 2,000 tokens."""
    attachment = {"title": "doc", "content": document}
    context = {"max_input_tokens": 2000, "mode": "simple"}
    answer = chat(gateway, model="gpt-4o", messages=[user(question)], attachments=[attachment], context=context)
    assert used(answer)["tokens_used"] <= 2000
    return text_of(upstream.last.body or {})


def test_s14_2_a_fact_on_a_late_page_comes_with_its_page(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§14.2: found by its words, or by the page that the question names."""
    for question in ("How much does the zebrafish tank hold?", "What is said at the end of page 37?"):
        sent = ask(one_gateway, upstream, "\n\n".join(PAGES), question)
        before, fact, _ = sent.partition("The zebrafish tank in hall C holds 412 litres.")
        assert fact, question
        assert re.findall(r"^\[page (\d+)\]$", before, re.MULTILINE)[-1] == "37"


def test_s14_2_a_row_of_a_long_sheet_is_shown_where_a_question_names_it(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§14.2: a workbook of 5,000 rows at 2,000 tokens, in English, German and as a cell; it can be cited."""
    book = Workbook(write_only=True)
    sheet = book.create_sheet("Berths")
    for number in range(1, 5001):
        sheet.append([f"berth {number * 7919 % 5003}", f"keeper {number % 89}", number * 31 % 997])
    raw = io.BytesIO()
    book.save(raw)
    file = {"file_data": base64.b64encode(raw.getvalue()).decode(), "filename": "berths.xlsx"}
    name, row = None, f"berth {3456 * 7919 % 5003},keeper {3456 % 89},{3456 * 31 % 997}"
    for question in ("What does row 3456 say?", "Was steht in Zeile 3456?", "Who keeps Berths!B3456?"):
        context = {"max_input_tokens": 2000, "cite": True}
        if name is not None:
            upstream.reply(text=f"It is so [{name}, Berths!A3456:C3456].")
        answer = chat(
            one_gateway, model="gpt-4o", messages=[user(question)], attachments=[file], context=context, store=False
        )
        assert used(answer)["tokens_used"] <= 2000
        sent = text_of(upstream.last.body or {})
        assert row in sent
        if name is not None:
            (cited,) = answer["response_metadata"]["citations"]
            assert cited["passages"][0]["text"] == row
        name = used(answer)["artifacts_processed"][0]["artifact_id"]
