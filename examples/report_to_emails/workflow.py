"""A report becomes emails to its stakeholders: orchestrator, choice, planner, writers at once, score and refinement.

Each step is an agent. With shared context all of them speak in one conversation of the gateway, so that each reads what
the others said; without it each request holds nothing but its own words. No package but `openai` is needed.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import openai
from replies import Json, object_in, objects_of, people_in, score_in, text_of

ORCHESTRATOR = "You read reports. You answer with JSON: what the company does and achieved, and who should hear of it."
PLANNER = "You plan emails. You answer with JSON: for each stakeholder the one point that the email is to make."
WRITER = "You write one short email, ready to be sent. You use the facts of the report."
REVIEWER = "You score an email from 1 to 10 and say in one sentence what is missing. You answer with JSON."
GOOD_ENOUGH = 8
SHORTEST_SUMMARY = 30
"""Characters; what is shorter says nothing of a company."""
READS: Json = {"type": "claude-code", "window": 20}
"""Writers and reviewer read what the others said as context before their message, and do not go on in its form."""
MAX_TOKENS = 300


def schema(name: str, **properties: Json) -> Json:
    """A `response_format` that asks for an object with these properties."""
    shape = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": shape}}


def many(**properties: Json) -> Json:
    """A list of objects with these properties."""
    inner = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "array", "items": inner}


TEXT: Json = {"type": "string"}
ANALYSIS = schema("analysis", company_summary=TEXT, stakeholders=many(name=TEXT, concern=TEXT))
PLAN = schema("plan", tasks=many(stakeholder=TEXT, point=TEXT))
REVIEW = schema("review", score={"type": "integer"}, advice=TEXT)


@dataclass(frozen=True)
class Stakeholder:
    """Somebody who should hear of the report."""

    name: str
    concern: str


@dataclass(frozen=True)
class Analysis:
    """What the orchestrator made of a report. `fell_back`: what it could not say was taken from the report itself."""

    summary: str
    stakeholders: tuple[Stakeholder, ...]
    fell_back: bool = False


@dataclass(frozen=True)
class Email:
    """An email with its score (None: the reviewer gave none). `refined`: it was written a second time."""

    to: Stakeholder
    text: str
    score: int | None
    refined: bool = False


@dataclass
class Spent:
    """What requests took, as the answers said. A cost is None as soon as one price is not known."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Decimal | None = field(default_factory=Decimal)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, usage: Any) -> None:
        """Adds the usage of an answer; `cost` is the gateway's field in it."""
        cost = (usage.model_extra or {}).get("cost") if usage is not None else None
        with self.lock:
            self.requests += 1
            self.prompt_tokens += usage.prompt_tokens if usage is not None else 0
            self.completion_tokens += usage.completion_tokens if usage is not None else 0
            self.cost = None if self.cost is None or cost is None else self.cost + Decimal(str(cost))


class Workflow:
    """One run over one report.

    Args:
        shared: whether all agents speak in one conversation.
        options: further fields of each request, such as `temperature`.
    """

    def __init__(self, client: openai.OpenAI, model: str, *, shared: bool, options: Json | None = None) -> None:
        self._client = client
        self._model = model
        self._shared = shared
        self._options = {"max_tokens": MAX_TOKENS, **(options or {})}
        self.conversation: str | None = None
        self.spent = Spent()

    def analyse(self, report: str) -> Analysis:
        """Stakeholders and a summary of the company; from the report's own lines where the model names none."""
        if self._shared:
            self.conversation = self._client.conversations.create().id
        question = "Summarize the company, and list the stakeholders of this report with what concerns each."
        answer = self._ask("orchestrator", ORCHESTRATOR, f"{question}\n\n{report}", ANALYSIS)
        found = object_in(answer) or {}
        people = [Stakeholder(text_of(each["name"]), text_of(each["concern"])) for each in _people(found)]
        people = [each for each in people if each.concern.lower() != each.name.lower()]
        summary = text_of(found.get("company_summary"))
        summary = summary if len(summary) >= SHORTEST_SUMMARY else ""
        in_report = [Stakeholder(*each) for each in people_in(report)]
        known = [each for each in people if each.name.lower() in report.lower()]
        fell_back = not (known and summary)
        return Analysis(summary or _first_paragraph(report), tuple(_once(known or in_report)), fell_back)

    def plan(self, chosen: Sequence[Stakeholder]) -> dict[str, str]:
        """The point of each email by the stakeholder's name; what concerns them where the planner says nothing."""
        names = "\n".join(f"- {each.name}: {each.concern}" for each in chosen)
        answer = self._ask("task_planner", PLANNER, f"Emails go to these stakeholders:\n{names}", PLAN)
        tasks = objects_of((object_in(answer) or {}).get("tasks"), "stakeholder", "point")
        said = {text_of(each["stakeholder"]).lower(): text_of(each["point"]) for each in tasks}
        return {each.name: _longer(said.get(each.name.lower(), ""), each) for each in chosen}

    def write(self, chosen: Sequence[Stakeholder], points: dict[str, str]) -> list[Email]:
        """The emails, written, scored and refined at once, in the order of `chosen`."""
        with ThreadPoolExecutor(max_workers=max(1, len(chosen))) as pool:
            return list(pool.map(lambda each: self._email(each, points[each.name]), chosen))

    def _email(self, to: Stakeholder, point: str) -> Email:
        writer = f"email_writer: {to.name}"
        draft = self._ask(writer, WRITER, f"Write the email to {to.name}. Its point: {point}.").strip()
        score, advice = self._score(to, draft)
        if score is None or score >= GOOD_ENOUGH:
            return Email(to, draft, score)
        again = f"Write your email to {to.name} once more. {advice}\n\nYour email was:\n\n{draft}"
        refined = self._ask(writer, WRITER, again).strip()
        better, _ = self._score(to, refined)
        if not refined or (better is not None and better < score):
            return Email(to, draft, score)  # the second is no better
        return Email(to, refined, better, refined=True)

    def _score(self, to: Stakeholder, text: str) -> tuple[int | None, str]:
        """The reviewer's score of an email, and what to do better."""
        review = self._ask("reviewer", REVIEWER, f"Score this email to {to.name}:\n\n{text}", REVIEW)
        found = object_in(review)
        return score_in(found, review), text_of((found or {}).get("advice")) or "Say more of what the report says."

    def _ask(self, agent: str, instruction: str, text: str, answers: Json | None = None) -> str:
        """What an agent answers. A server that knows no `response_format` is asked without."""
        request: Json = {"model": self._model, **self._options}
        request["messages"] = [{"role": "user", "content": text}]
        speaker = {"id": agent, "instruction": instruction, **({} if answers in (ANALYSIS, PLAN) else READS)}
        if self._shared:
            place: Json = {"conversation": self.conversation}
        else:
            place = {"store": False}
        request["extra_body"] = {**request.get("extra_body", {}), "agent": speaker, **place}
        create: Any = self._client.chat.completions.create
        try:
            completion = create(**request, **({"response_format": answers} if answers else {}))
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if answers is None or "response_format" not in str(error):
                raise
            completion = create(**request)
        self.spent.add(completion.usage)
        return str(completion.choices[0].message.content or "")


def _longer(point: str, of: Stakeholder) -> str:
    """The point, unless it says no more than a name."""
    return point if len(point) > len(of.name) else of.concern


def _people(found: Json) -> list[Json]:
    return objects_of(found.get("stakeholders"), "name", "concern")


def _once(people: Sequence[Stakeholder]) -> list[Stakeholder]:
    """Each name once, as it came first."""
    return list({each.name.lower(): each for each in reversed(people)}.values())[::-1]


def _first_paragraph(report: str) -> str:
    paragraphs = [part for part in report.split("\n\n") if part.strip() and not part.lstrip().startswith("#")]
    return " ".join(paragraphs[0].split()) if paragraphs else ""
