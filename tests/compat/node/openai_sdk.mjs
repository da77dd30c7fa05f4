// The official JavaScript SDK; the argument is the package, so that one script serves each major.
import { z } from 'zod';
import { MODEL, TOOLS, run, secondsUntilCancelled, user } from './scenarios.mjs';

const SDK = process.argv[2];
const { default: OpenAI } = await import(SDK);
const { zodResponseFormat } = await import(`${SDK}/helpers/zod`);

const client = new OpenAI({ maxRetries: 0, timeout: 20_000 });
const chat = client.chat.completions;
const Trip = z.object({ city: z.string(), days: z.number() });
const responseFormat = zodResponseFormat(Trip, 'trip');

const ask = (text, more = {}, options = {}) => chat.create({ model: MODEL, messages: [user(text)], ...more }, options);
const textOf = (chunks, index = 0) =>
  chunks.flatMap((chunk) => chunk.choices.filter((choice) => choice.index === index)).map((choice) => choice.delta.content ?? '').join('');
const empty = (chunks) => chunks.filter((chunk) => chunk.choices.length === 0).length;
const total = (answer) => answer.response_metadata.cost.total_cost;

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

async function raised(play) {
  try {
    await play();
  } catch (error) {
    return {
      class: error.constructor.name,
      status: error.status ?? null,
      code: error.code ?? null,
      param: error.param ?? null,
      message: error.message,
      retry_after: error.headers?.get('retry-after') ?? null,
      request_id: Boolean(error.requestID),
    };
  }
  return null;
}

const bill = (answer) => ({
  text: answer.choices[0].message.content,
  cost: answer.usage.cost,
  total: total(answer),
  conversation: answer.conversation.id,
  named: answer.response_metadata.conversation_id,
  tokens: answer.usage.total_tokens,
  request_id: answer._request_id === answer.response_metadata.request_id,
});

const answers = (message) =>
  message.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: `${call.function.name} done` }));
const named = (calls) => calls.map((call) => [call.function.name, call.function.arguments]);

const runnable = (seen) =>
  TOOLS.map((tool) => ({
    type: 'function',
    function: {
      ...tool.function,
      parse: JSON.parse,
      function: (given) => {
        seen.push([tool.function.name, JSON.stringify(given)]);
        return `${tool.function.name} done`;
      },
    },
  }));

await run({
  async plain() {
    return bill(await ask('plain'));
  },

  async raw() {
    const { data, response } = await ask('plain raw').withResponse();
    return {
      cost: Number(response.headers.get('x-gateway-response-cost')),
      conversation: response.headers.get('x-conversation-id') === data.conversation.id,
      request_id: response.headers.get('x-request-id') === data.response_metadata.request_id,
    };
  },

  async stream() {
    const chunks = await collect(await ask('plain stream', { stream: true }));
    const last = chunks.at(-1);
    return {
      text: textOf(chunks),
      first: !('cost' in chunks[0].response_metadata) && chunks[0].conversation.id === last.conversation.id,
      total: total(last),
      finish: last.choices[0].finish_reason,
      empty: empty(chunks),
    };
  },

  async stream_with_usage() {
    const options = { stream: true, stream_options: { include_usage: true } };
    const chunks = await collect(await ask('plain stream usage', options));
    const last = chunks.at(-1);
    return {
      text: textOf(chunks),
      cost: last.usage.cost,
      total: total(last),
      finish_total: total(chunks.at(-2)),
      empty: empty(chunks),
    };
  },

  async odd_stream() {
    const chunks = await collect(await ask('odd', { stream: true }));
    const final = await chat.stream({ model: MODEL, messages: [user('odd helper')] }).finalChatCompletion();
    return {
      text: textOf(chunks),
      helper: final.choices[0].message.content,
      total: total(chunks.at(-1)),
      empty: empty(chunks),
      kept: chunks.filter((chunk) => chunk.x_metrics).map((chunk) => chunk.x_metrics),
    };
  },

  async mode_off() {
    const answer = await ask('plain off', { context: { mode: 'off' } });
    return [answer.choices[0].message.content, answer.usage.cost, total(answer)];
  },

  async stream_helper() {
    const stream = chat.stream({ model: MODEL, messages: [user('plain helper')] });
    const chunks = [];
    let deltas = '';
    stream.on('chunk', (chunk) => chunks.push(chunk)).on('content', (delta) => (deltas += delta));
    const final = await stream.finalChatCompletion();
    return {
      text: final.choices[0].message.content,
      deltas,
      total: total(chunks.at(-1)),
      id: final.id === chunks[0].id,
      final_total: final.response_metadata?.cost?.total_cost ?? null,
      looked_up: total(await chat.retrieve(final.id)),
    };
  },

  async stream_helper_with_usage() {
    const options = { stream_options: { include_usage: true } };
    const stream = chat.stream({ model: MODEL, messages: [user('plain helper usage')], ...options });
    const final = await stream.finalChatCompletion();
    return { text: final.choices[0].message.content, cost: final.usage.cost, tokens: final.usage.total_tokens };
  },

  async to_readable() {
    const response = await ask('plain readable', { stream: true });
    const [one, other] = response.tee();
    const relayed = await collect(one);
    const lines = await new Response(other.toReadableStream()).text();
    const last = JSON.parse(lines.trim().split('\n').at(-1));
    return { text: textOf(relayed), total: total(last) };
  },

  async tool_loop() {
    const messages = [user('tools plain')];
    const { message } = (await chat.create({ model: MODEL, messages, tools: TOOLS })).choices[0];
    const last = await chat.create({ model: MODEL, messages: [...messages, message, ...answers(message)], tools: TOOLS });
    return { calls: named(message.tool_calls), text: last.choices[0].message.content, total: total(last) };
  },

  async tool_loop_streamed() {
    const messages = [user('tools streamed')];
    const message = await chat.stream({ model: MODEL, messages, tools: TOOLS }).finalMessage();
    const second = chat.stream({ model: MODEL, messages: [...messages, message, ...answers(message)], tools: TOOLS });
    const chunks = await collect(second);
    return { calls: named(message.tool_calls), text: textOf(chunks), total: total(chunks.at(-1)) };
  },

  async tool_runner() {
    const seen = [];
    const runner = chat.runTools({ model: MODEL, messages: [user('tools runner')], tools: runnable(seen) });
    const totals = [];
    runner.on('chatCompletion', (completion) => totals.push(total(completion)));
    return { text: await runner.finalContent(), calls: seen, totals };
  },

  async tool_runner_streamed() {
    const seen = [];
    const runner = chat.runTools({ model: MODEL, messages: [user('tools run streamed')], tools: runnable(seen), stream: true });
    const totals = [];
    runner.on('chunk', (chunk) => chunk.response_metadata?.cost && totals.push(total(chunk)));
    return { text: await runner.finalContent(), calls: seen, totals };
  },

  async structured() {
    const body = { model: MODEL, messages: [user('structured')], response_format: responseFormat };
    const answer = await chat.parse(body);
    return { parsed: answer.choices[0].message.parsed, cost: answer.usage.cost };
  },

  async structured_streamed() {
    const body = { model: MODEL, messages: [user('structured streamed')], response_format: responseFormat };
    return { parsed: (await chat.stream(body).finalMessage()).parsed };
  },

  async two_choices() {
    const answer = await ask('plain two', { n: 2 });
    const chunks = await collect(await ask('plain two streamed', { n: 2, stream: true }));
    const final = await chat.stream({ model: MODEL, messages: [user('plain two helper')], n: 2 }).finalChatCompletion();
    return {
      plain: answer.choices.map((choice) => choice.message.content),
      streamed: [textOf(chunks, 0), textOf(chunks, 1)],
      helper: final.choices.map((choice) => choice.message.content),
      total: total(chunks.at(-1)),
    };
  },

  async refusal() {
    const body = { model: MODEL, messages: [user('refusal streamed')], response_format: responseFormat };
    const final = await chat.stream(body).finalChatCompletion();
    return { plain: (await ask('refusal')).choices[0].message.refusal, streamed: final.choices[0].message.refusal };
  },

  async logprobs() {
    const answer = await ask('logprobs', { logprobs: true });
    const body = { model: MODEL, messages: [user('logprobs streamed')], logprobs: true };
    const final = await chat.stream(body).finalChatCompletion();
    return [answer, final].map((one) => one.choices[0].logprobs.content[0].logprob);
  },

  async reasoning() {
    const chunks = await collect(await ask('reasoning streamed', { stream: true }));
    return {
      plain: (await ask('reasoning')).choices[0].message.reasoning_content,
      streamed: chunks.map((chunk) => chunk.choices[0].delta.reasoning_content ?? '').join(''),
    };
  },

  async errors() {
    const stranger = new OpenAI({ apiKey: 'sk-stranger', maxRetries: 0 });
    const found = {};
    for (const status of [400, 404, 422, 429, 500, 503]) found[status] = await raised(() => ask(`status ${status}`));
    return {
      ...found,
      streamed: await raised(() => ask('status 400', { stream: true })),
      stranger: await raised(() => stranger.chat.completions.create({ model: MODEL, messages: [user('plain')] })),
      ours: await raised(() => ask('plain', { attachments: [{}] })),
      unknown: await raised(() => ask('plain', { conversation: 'conv_unknown' })),
    };
  },

  async retries() {
    return (await ask('busy', {}, { maxRetries: 2 })).choices[0].message.content;
  },

  async error_in_stream() {
    return raised(async () => collect(await ask('broken', { stream: true })));
  },

  async cut_stream() {
    return raised(async () => collect(await ask('cut', { stream: true })));
  },

  async conversation() {
    const first = await ask('plain one');
    const chosen = first.conversation.id;
    const byBody = await ask('plain two', { conversation: chosen });
    const byHeader = await ask('plain three', {}, { headers: { 'X-Conversation-Id': chosen } });
    const names = [];
    for (const text of ['plain', 'plain'])
      names.push((await ask(text, {}, { headers: { 'X-Context-Session': 'diary' } })).conversation.id);
    const listed = await collect(await chat.list({}, { query: { conversation: chosen } }));
    return {
      same: [first, byBody, byHeader].every((one) => one.conversation.id === chosen),
      session: names[0] === names[1] && names[0] !== chosen,
      listed: JSON.stringify(listed.map((one) => one.id)) === JSON.stringify([first.id, byBody.id, byHeader.id]),
      listed_cost: listed.map(total).reduce((sum, cost) => sum + cost),
      retrieved: (await chat.retrieve(first.id)).choices[0].message.content,
      by_request: (await chat.retrieve(first.response_metadata.request_id)).id === first.id,
    };
  },

  async attachments() {
    const document = { title: 'Contract', content: 'Clause 14 says that the clause after it is void.' };
    const answer = await ask('plain attached', { attachments: [document], context: { mode: 'simple' } });
    const used = answer.response_metadata.context_utilization.artifacts_processed;
    return used.length === 1 ? used[0].source : used;
  },

  async models() {
    const listed = await collect(await client.models.list());
    return { listed: listed.map((one) => one.id), one: (await client.models.retrieve(MODEL)).id };
  },

  async other_paths() {
    const vector = await client.embeddings.create({ model: 'text-embedding-3-small', input: 'the sea' });
    const streamed = await client.responses.stream({ model: MODEL, input: 'plain' }).finalResponse();
    return {
      embedding: vector.data[0].embedding.length,
      response: (await client.responses.create({ model: MODEL, input: 'plain' })).output_text,
      response_streamed: streamed.output_text,
      batches: await raised(() => client.batches.list()),
      files: (await client.files.list()).data.map((each) => each.id),
    };
  },

  async abort() {
    const controller = new AbortController();
    const stream = await ask('stall abort', { stream: true }, { signal: controller.signal });
    await stream[Symbol.asyncIterator]().next();
    controller.abort();
    return secondsUntilCancelled('stall abort');
  },

  async abort_by_break() {
    for await (const chunk of await ask('stall break', { stream: true })) if (chunk) break;
    return secondsUntilCancelled('stall break');
  },

  async abort_helper() {
    const stream = chat.stream({ model: MODEL, messages: [user('stall helper')] });
    stream.on('error', () => {}).on('abort', () => {});
    await new Promise((resolve) => stream.once('chunk', resolve));
    stream.abort();
    return secondsUntilCancelled('stall helper');
  },
});
