"""The official Python SDK with a key of its own: files go up through the relay and become attachments."""

from openai import OpenAI
from scenarios import MODEL, main, scenario, user

client = OpenAI(max_retries=0)


@scenario
def files():
    made = client.files.create(file=("contract.txt", b"Clause 14 voids the one after it."), purpose="user_data")
    content = client.files.content(made.id).read().decode()
    attached = {"attachments": [{"attachment_id": made.id, "title": "Contract"}]}
    answer = client.chat.completions.create(model=MODEL, messages=[user("plain")], extra_body=attached)
    (used,) = answer.response_metadata["context_utilization"]["artifacts_processed"]
    return {"id": made.id, "content": content, "source": used["source"], "cost": answer.usage.cost}


main()
