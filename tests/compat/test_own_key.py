"""The official SDKs with a key of their own: every path is relayed to the upstream that the key belongs to."""

import pytest

from tests.compat.running import KEY, run_node, run_python
from tests.compat.scripted import COST
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

pytestmark = pytest.mark.compat

TEXT = b"Clause 14 voids the one after it."
FILE = {
    "id": "file-1",
    "object": "file",
    "bytes": len(TEXT),
    "created_at": 1,
    "filename": "contract.txt",
    "purpose": "user_data",
    "status": "processed",
}


@pytest.fixture(scope="module")
def own_key_gateway(scripted_upstream: MockUpstream, module_start_gateway: GatewayFactory) -> GatewayProcess:
    """A gateway without keys before an upstream that keeps files."""

    def keep(record: Record) -> Reply:
        assert b'filename="contract.txt"' in record.raw
        assert TEXT in record.raw
        scripted_upstream.files["file-1"] = TEXT
        return Reply(json=FILE)

    scripted_upstream.routes["POST /v1/files"] = keep
    scripted_upstream.routes["GET /v1/files/file-1"] = Reply(json=FILE)
    return module_start_gateway({"model_list": []})


@pytest.mark.parametrize("sdk", ["openai-3", "openai-2", "node:openai", "node:openai-6"])
def test_s1_s2_files_go_up_and_become_attachments(
    sdk: str, own_key_gateway: GatewayProcess, scripted_upstream: MockUpstream
) -> None:
    """§1: every path with the client's own token; §2: `attachment_id` is a `/v1/files` id."""
    if sdk.startswith("node:"):
        results = run_node("openai_files", own_key_gateway, scripted_upstream, sdk.removeprefix("node:"))
    else:
        results = run_python(sdk, "openai_files", own_key_gateway, scripted_upstream)
    found = results["files"]
    assert (found["id"], found["content"], found["cost"]) == ("file-1", TEXT.decode(), COST)
    assert found["source"] == "attachment:0:Contract"
    assert scripted_upstream.last.headers["authorization"] == f"Bearer {KEY}"
    assert TEXT.decode() in str(scripted_upstream.last.body["messages"])
