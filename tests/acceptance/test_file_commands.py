"""`gateway files`, beside a running server, on either database (guarantee §14.5)."""

import csv
import io
import json
import os
from typing import Any

from openai import OpenAI

from tests.support.answers import Json, chat, user
from tests.support.command import gateway_command
from tests.support.documents import text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ADA, BOB = "sk-key-of-ada", "sk-key-of-bob"
KEYS = [{"key": ADA, "tenant": "acme"}, {"key": BOB, "tenant": "other"}]
FACT = "The keeper of the zanzibar lamp is called Ines."
GONE = "(This document was deleted.)"


def run(gateway: GatewayProcess, *arguments: str, status: int = 0) -> Any:
    done = gateway_command("files", *arguments, "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def read(gateway: GatewayProcess, *arguments: str) -> Json:
    found: Json = json.loads(run(gateway, *arguments, "--json").stdout)
    return found


def uploaded(gateway: GatewayProcess, key: str, name: str, text: str, **more: Any) -> str:
    with OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as client:
        return client.files.create(file=(name, text.encode()), purpose="user_data", **more).id


def asked(gateway: GatewayProcess, **body: Any) -> Json:
    return chat(gateway, key=ADA, model="small", **body)


def test_s14_5_files_are_listed_and_shown(guarded: GatewayProcess) -> None:
    """Those of one tenant or of all, as the API tells them; what a client calls one is shown as text."""
    ends: Any = {"expires_after": {"anchor": "created_at", "seconds": 3600}}
    first = uploaded(guarded, ADA, "notes\x1b[31m.txt", FACT, **ends)
    again, others = uploaded(guarded, ADA, "copy.txt", FACT), uploaded(guarded, BOB, "b.txt", "Other words.")
    for file_id, key in ((first, ADA), (again, ADA), (others, BOB)):
        with OpenAI(base_url=guarded.base_url, api_key=key) as client:
            client.files.wait_for_processing(file_id, poll_interval=0.05)
    told = guarded.get(f"/files/{first}", key=ADA).json()
    listed = read(guarded, "ls", "--limit", "2")
    assert ([each["id"] for each in listed["data"]], listed["has_more"]) == ([others, again], True)
    listed = read(guarded, "ls", "--tenant", "acme")
    assert ([each["id"] for each in listed["data"]], listed["has_more"]) == ([again, first], False)
    assert listed["data"][1] == {"tenant": "acme", **{k: told[k] for k in listed["data"][1] if k != "tenant"}}
    rows = list(csv.DictReader(io.StringIO(run(guarded, "ls", "--tenant", "acme", "--csv").stdout)))
    assert [(row["id"], int(row["bytes"])) for row in rows] == [(each["id"], each["bytes"]) for each in listed["data"]]
    table = run(guarded, "ls").stdout
    assert all(each in table for each in (first, again, others, "acme", "other", "user_data", "processed"))
    assert "\x1b" not in table
    part, attachment = {"type": "file", "file": {"file_id": first}}, {"file_id": first}
    named = asked(guarded, messages=[user([part, {"type": "text", "text": "Who?"}])])["conversation"]["id"]
    attached = asked(guarded, messages=[user("Who?")], attachments=[attachment])["conversation"]["id"]
    shown = read(guarded, "show", first)
    assert sorted(shown["conversations"]) == sorted([named, attached])
    assert (shown["same_content"], shown["status"], shown["progress"]) == ([again], "processed", 1.0)
    assert shown["expires_at"] == told["expires_at"] == shown["created_at"] + 3600
    assert attached in run(guarded, "show", first).stdout
    for arguments in (["show", first, "--tenant", "other"], ["show", "file-none"], ["rm", first, "--tenant", "other"]):
        assert "No such File" in run(guarded, *arguments, status=1).stderr
    for file_id in (first, again, others):
        run(guarded, "rm", file_id)
    assert "no files" in run(guarded, "ls").stderr


def test_s14_5_a_file_that_is_removed_is_gone_as_if_its_owner_had_deleted_it(
    guarded: GatewayProcess, upstream: MockUpstream
) -> None:
    """Also from what the running server has read of it; the trail says who did it."""
    file_id = uploaded(guarded, ADA, "notes.txt", FACT)
    part, attachment = {"type": "file", "file": {"file_id": file_id}}, {"file_id": file_id}
    conversations = [
        asked(guarded, messages=[user([part, {"type": "text", "text": "Who?"}])])["conversation"]["id"],
        asked(guarded, messages=[user("Who?")], attachments=[attachment])["conversation"]["id"],
    ]
    assert FACT in text_of(upstream.last.body)
    assert read(guarded, "rm", file_id) == {"id": file_id, "object": "file", "deleted": True}
    assert guarded.get(f"/files/{file_id}", key=ADA).status_code == 404
    for conversation in conversations:
        asked(guarded, messages=[user("And now?")], conversation=conversation)
        assert "zanzibar" not in json.dumps(upstream.last.body)
        assert (GONE in text_of(upstream.last.body)) == (conversation == conversations[0])
    listing = gateway_command(
        "trail", "list", "--json", "--config", str(guarded.config_path), directory=guarded.directory
    )
    event = next(each for each in json.loads(listing.stdout)["data"] if each["object_id"] == file_id)
    assert (event["action"], event["tenant"], event["actor"]) == ("file.deleted", "acme", None)


def test_s14_5_a_file_is_uploaded_for_a_tenant(guarded: GatewayProcess) -> None:
    """It is there for that tenant's keys, and for no others."""
    path = guarded.directory / "lamp.txt"
    path.write_text(FACT)
    put = read(guarded, "put", str(path), "--tenant", "acme", "--purpose", "assistants", "--expires", "3600")
    assert (put["filename"], put["bytes"], put["tenant"]) == ("lamp.txt", len(FACT), "acme")
    for key, found in ((ADA, 200), (BOB, 404)):
        assert guarded.get(f"/files/{put['id']}", key=key).status_code == found
    assert guarded.get(f"/files/{put['id']}/content", key=ADA).text == FACT
    assert "No such file" in run(guarded, "put", str(path) + "-none", "--tenant", "acme", status=1).stderr
    assert "--tenant" in run(guarded, "put", str(path), status=2).stderr
    month = read(guarded, "put", str(path), "--tenant", "acme", "--expires", str(30 * 86_400))
    assert month["expires_at"] - month["created_at"] == 30 * 86_400


def test_s14_5_a_name_that_is_no_utf_8_can_be_uploaded(guarded: GatewayProcess) -> None:
    path = guarded.directory / os.fsdecode(b"caf\xe9.txt")
    path.write_text(FACT)
    assert read(guarded, "put", str(path), "--tenant", "acme")["filename"] == "caf?.txt"
