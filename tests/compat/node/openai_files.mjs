// The official JavaScript SDK with a key of its own: files go up through the relay and become attachments.
import { MODEL, run, user } from './scenarios.mjs';

const { default: OpenAI, toFile } = await import(process.argv[2]);
const client = new OpenAI({ maxRetries: 0 });

await run({
  async files() {
    const file = await toFile(Buffer.from('Clause 14 voids the one after it.'), 'contract.txt');
    const made = await client.files.create({ file, purpose: 'user_data' });
    const content = await (await client.files.content(made.id)).text();
    const attachments = [{ attachment_id: made.id, title: 'Contract' }];
    const answer = await client.chat.completions.create({ model: MODEL, messages: [user('plain')], attachments });
    const [used] = answer.response_metadata.context_utilization.artifacts_processed;
    return { id: made.id, content, source: used.source, cost: answer.usage.cost };
  },
});
