"""The cases of the design that contexts of agents come from, by their names (guarantee §11)."""

import json

import pytest

from gateway.core.types.conversation import ConversationHistory
from gateway.pipeline.features.agent_sections import deliver
from tests.support.answers import Json, user
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream
from tests.support.team import Team, claude

TASK = "Ship the lamp."
CODEX: Json = {"id": "max", "type": "openai-codex"}
GEMINI: Json = {"id": "max", "type": "google-gemini"}


def item(text: str) -> Json:
    return {"type": "message", "role": "user", "content": text}


def prompt(team: Team) -> str:
    text: str = team.sent[-1]["content"]
    return text


class TestContextManager:
    """What is kept, and what is delivered."""

    def test_add_message_stores_and_returns_message_with_id(self, team: Team) -> None:
        team.begin()
        (made,) = team.post(f"/conversations/{team.conversation}/items", {"items": [item("Hi")]}).json()["data"]
        assert made["id"].startswith("msg_")
        assert team.items() == [made]

    def test_get_latest_message_returns_null_when_empty(self, team: Team) -> None:
        team.begin()
        assert team.items() == []

    def test_get_latest_message_returns_last_message(self, team: Team) -> None:
        team.begin(items=[item("Hi"), item("Ho")])
        team.ask(claude("max"))
        assert prompt(team).endswith("[MESSAGE]\nHo")

    def test_get_messages_returns_all_messages_in_order(self, team: Team) -> None:
        team.begin(items=[item("1"), item("2"), item("3")])
        assert [each["content"][0]["text"] for each in team.items()] == ["1", "2", "3"]

    def test_set_team_task_stores_task(self, team: Team) -> None:
        team.begin()
        team.post(f"/conversations/{team.conversation}", {"team_task": TASK})
        assert team.client.get(f"/conversations/{team.conversation}").json()["team_task"] == TASK

    @pytest.mark.parametrize(("size", "warned"), [(5 * 1024, False), (5 * 1024 + 1, True)])
    def test_set_team_task_truncates_at_5_kb_with_warning(self, team: Team, size: int, warned: bool) -> None:
        """Exactly 5 KB stay as they are."""
        made = team.begin(team_task="x" * size)
        assert made["team_task"] == "x" * 5 * 1024
        assert bool(made.get("warnings")) == warned

    def test_get_team_task_returns_null_initially(self, team: Team) -> None:
        assert team.begin().get("team_task") is None

    def test_clear_removes_all_messages_and_team_task(self, team: Team) -> None:
        made = team.begin(items=[item("Hi")], team_task=TASK, metadata={"a": "b"})
        path = f"/conversations/{team.conversation}"
        emptied = team.client.delete(f"{path}/items").json()
        assert {name: emptied.get(name) for name in ("id", "metadata", "created_at")} == {
            name: made[name] for name in ("id", "metadata", "created_at")
        }
        assert (team.items(), emptied.get("team_task")) == ([], None)
        team.ask(claude("max"), user("Ho"))
        assert prompt(team) == "[MESSAGE]\nHo"
        assert team.client.delete(path).json()["deleted"]
        assert team.client.delete(f"{path}/items").status_code == 404

    def test_export_snapshot_returns_serializable_state(self, team: Team) -> None:
        team.begin(items=[item("Hi")], team_task=TASK)
        snapshot = json.loads(team.client.get(f"/conversations/{team.conversation}/export").content)
        assert (snapshot["team_task"], len(snapshot["messages"])) == (TASK, 1)

    def test_import_snapshot_restores_state(self, team: Team) -> None:
        team.begin(team_task=TASK)
        team.ask("max", user("Hi"), answer="Hello!")
        snapshot = team.client.get(f"/conversations/{team.conversation}/export").json()
        team.conversation = team.post("/conversations/import", snapshot).json()["id"]
        team.ask(claude("sarah"))
        assert prompt(team) == f"[TEAM_TASK]\n{TASK}\n\n[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHello!"

    def test_get_context_for_agent_returns_empty_context_when_no_messages(self) -> None:
        found = deliver(ConversationHistory("conv_1", False, (), ()), 5)
        assert (found.context, found.text) == ((), "")

    @pytest.mark.parametrize(("window", "shown"), [(2, "user: 2\nuser: 3"), (0, ""), (9, "user: 1\nuser: 2\nuser: 3")])
    def test_get_context_for_agent_applies_window_size_limit(self, team: Team, window: int, shown: str) -> None:
        """A window of 0 has no context."""
        team.begin(items=[item("1"), item("2"), item("3"), item("now")])
        team.ask(claude("max", window=window))
        assert prompt(team) == (f"[CONTEXT]\n{shown}\n\n" if shown else "") + "[MESSAGE]\nnow"

    def test_single_message_has_no_context(self, team: Team) -> None:
        team.ask(claude("max"), user("Hi"))
        assert prompt(team) == "[MESSAGE]\nHi"

    def test_get_context_for_agent_deduplicates_ai_to_ai(self, team: Team) -> None:
        """The same speaker and content."""
        team.ask("max", user("Hi"), answer="Hello!")
        team.ask("max", answer="Hello!")
        team.ask(claude("sarah"))
        assert prompt(team) == "[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHello!"

    def test_get_context_for_agent_does_not_deduplicate_another_speaker(self, team: Team) -> None:
        team.ask("max", user("Hi"), answer="Hello!")
        team.ask("carol", answer="Hello!")
        team.ask(claude("sarah"))
        assert prompt(team) == "[CONTEXT]\nuser: Hi\nmax: Hello!\n\n[MESSAGE]\nHello!"

    def test_get_context_for_agent_does_not_deduplicate_human_messages(self, team: Team) -> None:
        team.begin(items=[item("Hi"), item("Hi")])
        team.ask(claude("max"))
        assert prompt(team) == "[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHi"

    def test_get_context_for_agent_strips_markers_from_context(self, team: Team) -> None:
        team.begin(items=[item("[NEXT:max] Oil [TEAM_TASK: ship it]"), item("And now?")])
        team.ask(claude("max"))
        assert prompt(team) == "[CONTEXT]\nuser: Oil\n\n[MESSAGE]\nAnd now?"


class TestAssemblers:
    """Each type's sections, by what its model is sent."""

    def test_claude_separates_the_system_flag(self, team: Team) -> None:
        team.begin(items=[item("Hi"), item("Ho")], team_task=TASK)
        team.ask(claude("max", instruction="Be brief."))
        assert team.sent == [
            {"role": "system", "content": "Be brief."},
            user(f"[TEAM_TASK]\n{TASK}\n\n[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHo"),
        ]

    def test_codex_has_all_sections_inline_in_order(self, team: Team) -> None:
        team.begin(items=[item("Hi"), item("Ho")], team_task=TASK)
        team.ask({**CODEX, "instruction": "Be brief."})
        sections = f"[SYSTEM]\nBe brief.\n\n[TEAM_TASK]\n{TASK}\n\n[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHo"
        assert team.sent == [user(sections)]

    def test_gemini_has_words_and_no_brackets(self, team: Team) -> None:
        team.begin(items=[item("Hi"), item("Ho")])
        team.ask({**GEMINI, "instruction": "Be brief."})
        assert team.sent == [user("Instructions:\nBe brief.\n\nConversation so far:\nuser: Hi\n\nUser message:\nHo")]

    @pytest.mark.parametrize("agent", [claude("max"), CODEX, GEMINI, {"id": "max", "type": "plain"}])
    def test_empty_section_not_emitted(self, team: Team, agent: Json) -> None:
        """Empty and whitespace-only instructions, no team task, no context."""
        team.ask({**agent, "instruction": " \n", "instruction_file_text": ""}, user("Hi"))
        (message,) = team.sent
        assert message["content"] in {"[MESSAGE]\nHi", "User message:\nHi", "Hi"}

    @pytest.mark.parametrize("given", [{"instruction": " Be brief. "}, {"instruction_file_text": "\nBe brief.\n"}])
    def test_only_one_instruction(self, team: Team, given: Json) -> None:
        team.ask(claude("max", **given), user("Hi"))
        assert team.sent[0] == {"role": "system", "content": "Be brief."}

    def test_unknown_agent_type_falls_back_to_plain_text(self, team: Team) -> None:
        answer = team.ask({"id": "max", "type": "other", "instruction": "Be brief."}, user("Hi"))
        assert team.sent == [user("Be brief.\n\nHi")]
        assert answer["response_metadata"]["context_utilization"]["warnings"] == ["agent_type_unknown"]

    def test_max_bytes_is_what_the_trimmer_gets(self, start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
        team = Team(start_gateway({"context": {"agent_max_bytes": 60}}), upstream)
        with team.client:
            team.begin(items=[item("old " * 5), item("young"), item("Hi")])
            for agent in (claude("max"), CODEX, GEMINI, {"id": "max", "type": "plain"}):
                team.ask({**agent, "window": 2}, user("Hi"))
                assert "old" not in prompt(team)
                assert "Hi" in prompt(team)


class TestIntegration:
    """Agents that hand over to each other."""

    def test_parallel_next_routing_each_agent_gets_correct_context(self, team: Team) -> None:
        team.ask(claude("max"), user("[NEXT:max] [NEXT:sarah] [NEXT:carol] Hi"), answer="Ice.")
        assert prompt(team) == "[MESSAGE]\nHi"
        team.ask(claude("sarah"), answer="Fog.")
        assert prompt(team) == "[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nIce."
        team.ask(claude("carol"))
        assert prompt(team) == "[CONTEXT]\nuser: Hi\nmax: Ice.\n\n[MESSAGE]\nFog."

    def test_ai_to_ai_deduplication_in_routing_chain(self, team: Team) -> None:
        for name in ("max", "sarah", "carol"):
            messages = (user("Hi"),) if name == "max" else ()
            team.ask(claude(name), *messages, answer=f"{name} speaks [NEXT:all]")
            assert prompt(team).count("max speaks") == (name != "max")
            assert prompt(team).count("sarah speaks") == (name == "carol")

    def test_team_task_injection_across_all_agents(self, team: Team) -> None:
        team.begin(items=[item("Hi")], team_task=TASK)
        for agent in (claude("max"), CODEX, GEMINI, {"id": "max", "type": "plain"}):
            team.ask(agent)
            assert prompt(team).count(TASK) == 1

    def test_token_budget_trimming_drops_oldest_context(self, team: Team) -> None:
        team.begin(items=[item(f"{number} " + "word " * 100) for number in range(4)] + [item("Hi")])
        team.ask(claude("max"), context={"max_input_tokens": 250})
        assert [line[:7] for line in prompt(team).split("\n") if line.startswith("user")] == ["user: 2", "user: 3"]

    def test_context_marker_stripping_prevents_duplication(self, team: Team) -> None:
        team.ask("max", user("Hi"), answer="Hello! [NEXT:sarah]")
        team.ask("max", answer="Hello!")
        team.ask(claude("sarah"))
        assert "[NEXT" not in prompt(team)
        assert prompt(team).count("Hello!") == 1
