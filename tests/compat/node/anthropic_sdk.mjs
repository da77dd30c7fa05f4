// Anthropic's official JavaScript SDK: what a user of it sees.
import Anthropic from '@anthropic-ai/sdk';
import { MODEL, run, TOOLS, user } from './scenarios.mjs';

const baseURL = process.env.OPENAI_BASE_URL.replace(/\/v1$/, '');
const { messages } = new Anthropic({ baseURL, apiKey: process.env.OPENAI_API_KEY, maxRetries: 0 });
const common = { model: MODEL, max_tokens: 500 };
const tools = TOOLS.map(({ function: { name, parameters } }) => ({ name, input_schema: parameters }));
const textOf = (message) => message.content.filter((block) => block.type === 'text').map((block) => block.text).join('');
const bill = (message) => ({
  text: textOf(message),
  cost: message.usage.cost,
  total: message.response_metadata.cost.total_cost,
  conversation: message.conversation.id.slice(0, 5),
  tokens: message.usage.input_tokens + message.usage.output_tokens,
});

await run({
  async plain() {
    return bill(await messages.create({ messages: [user('plain')], ...common }));
  },
  async stream_helper() {
    const stream = messages.stream({ messages: [user('plain helper')], ...common });
    let deltas = '';
    let told;
    stream.on('text', (delta) => (deltas += delta));
    stream.on('streamEvent', (event) => (told = event.type === 'message_delta' ? event : told));
    const final = await stream.finalMessage();
    return { text: textOf(final), deltas, cost: told.usage.cost, total: told.response_metadata.cost.total_cost };
  },
  async tool_loop() {
    const first = await messages.create({ messages: [user('tools')], tools, ...common });
    const calls = first.content.filter((block) => block.type === 'tool_use');
    const results = calls.map((call) => ({ type: 'tool_result', tool_use_id: call.id, content: 'done' }));
    const said = [user('tools'), { role: 'assistant', content: first.content }, user(results)];
    const second = await messages.create({ messages: said, tools, ...common });
    const same = first.conversation.id === second.conversation.id;
    return { calls: calls.map((call) => [call.name, call.input]), ...bill(second), same };
  },
  async counted() {
    return (await messages.countTokens({ model: MODEL, messages: [user('plain')] })).input_tokens;
  },
});
