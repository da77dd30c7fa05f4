// The official JavaScript SDK by Responses, under the package name given: what a user of it sees.
import { z } from 'zod';
import { MODEL, run, TOOLS } from './scenarios.mjs';

const name = process.argv[2];
const { default: OpenAI } = await import(name);
const { zodTextFormat } = await import(`${name}/helpers/zod`);
const { responses } = new OpenAI({ maxRetries: 0 });
const tools = TOOLS.map((tool) => ({ type: 'function', ...tool.function }));
const Trip = z.object({ city: z.string(), days: z.number() });
const bill = (response) => ({
  text: response.output_text,
  cost: response.usage.cost,
  total: response.response_metadata.cost.total_cost,
  conversation: response.conversation.id.slice(0, 5),
  tokens: response.usage.total_tokens,
});

await run({
  async plain() {
    return bill(await responses.create({ model: MODEL, input: 'plain' }));
  },
  async stream_helper() {
    const stream = responses.stream({ model: MODEL, input: 'plain helper' });
    let deltas = '';
    stream.on('response.output_text.delta', (event) => (deltas += event.delta));
    return { ...bill(await stream.finalResponse()), deltas };
  },
  async tool_loop() {
    const first = await responses.create({ model: MODEL, input: 'tools', tools });
    const calls = first.output.filter((item) => item.type === 'function_call');
    const results = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: 'done' }));
    const input = [{ role: 'user', content: 'tools' }, ...first.output, ...results];
    const second = await responses.create({ model: MODEL, input, tools });
    const same = first.conversation.id === second.conversation.id;
    return { calls: calls.map((call) => [call.name, JSON.parse(call.arguments)]), ...bill(second), same };
  },
  async parsed() {
    const text = { format: zodTextFormat(Trip, 'trip') };
    return (await responses.parse({ model: MODEL, input: 'trip', text })).output_parsed;
  },
});
