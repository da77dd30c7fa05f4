"""A mail with a long thread and attachments, made by Python's `email`."""

from email.message import EmailMessage
from email.policy import SMTP

from evals.corpus import flat, office
from evals.corpus.facts import Place, sections
from evals.corpus.samples import Sample
from tests.support.documents import prose


def samples() -> list[Sample]:
    """One mail whose attachments are a text of many sections and a workbook."""
    told = sections(81, 14, 160)
    mail = EmailMessage(policy=SMTP)
    mail["From"] = "Zoë Quint <zoe@example.org>"
    mail["To"] = "keepers@example.org"
    mail["Subject"] = "Schlüssel und Lampen"
    mail["Date"] = "Wed, 01 May 2024 10:00:00 +0000"
    mail["Message-ID"] = "<1@example.org>"
    thread = "\n\n".join(f"On day {n} Lorcan wrote:\n> {each.text}" for n, each in enumerate(told[:7]))
    mail.set_content(f"Dear all,\n\n{thread}\n\n{prose(81, 60)}\n")
    text = "\n\n".join(f"# {each.title}\n\n{each.text}" for each in told[7:])
    mail.add_attachment(text, filename="keepers.md", subtype="markdown")
    book = office.workbook()
    mail.add_attachment(
        book.raw, "application", "vnd.openxmlformats-officedocument.spreadsheetml.sheet", filename="d.xlsx"
    )
    facts = (
        told[12].fact("attachment", Place("file", "keepers.md")),
        told[5].fact("message"),
        *flat.stock_facts("Depot 2", flat.stock(31)[1], 4)[:1],
    )
    return [Sample("keys.eml", "message/rfc822", mail.as_bytes(), facts)]
