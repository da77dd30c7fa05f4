// LangChain.js: what a user of it sees.
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import { MODEL, TOOLS, run, secondsUntilCancelled } from './scenarios.mjs';

const configuration = { baseURL: process.env.OPENAI_BASE_URL };
const model = new ChatOpenAI({ model: MODEL, maxRetries: 0, configuration, __includeRawResponse: true });
const Trip = z.object({ city: z.string(), days: z.number() });
const raw = (message) => message.additional_kwargs.__raw_response;

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const whole = (chunks) => chunks.reduce((before, chunk) => before.concat(chunk));
const bills = (chunks) => chunks.map((chunk) => raw(chunk)?.response_metadata?.cost?.total_cost).filter(Boolean);

async function raised(play) {
  try {
    await play();
  } catch (error) {
    return [error.status ?? null, error.error?.code ?? error.code ?? null];
  }
  return null;
}

async function toolLoop(ask, prompt) {
  const armed = model.bindTools(TOOLS);
  const messages = [new HumanMessage(prompt)];
  const first = await ask(armed, messages);
  const results = first.tool_calls.map((call) => new ToolMessage({ content: `${call.name} done`, tool_call_id: call.id }));
  const last = await ask(armed, [...messages, first, ...results]);
  return { calls: first.tool_calls.map((call) => [call.name, call.args]), text: last.content };
}

await run({
  async plain() {
    const answer = await model.invoke('plain');
    return {
      text: answer.content,
      cost: answer.response_metadata.usage.cost,
      total: raw(answer).response_metadata.cost.total_cost,
      tokens: answer.usage_metadata.total_tokens,
    };
  },

  async stream() {
    const chunks = await collect(await model.stream('plain stream'));
    const message = whole(chunks);
    return {
      text: message.content,
      cost: message.response_metadata.usage.cost,
      total: bills(chunks).at(-1),
      tokens: message.usage_metadata.total_tokens,
    };
  },

  async odd_stream() {
    return whole(await collect(await model.stream('odd'))).content;
  },

  async tool_loop() {
    return toolLoop((armed, messages) => armed.invoke(messages), 'tools plain');
  },

  async tool_loop_streamed() {
    return toolLoop(async (armed, messages) => whole(await collect(await armed.stream(messages))), 'tools streamed');
  },

  async structured() {
    return model.withStructuredOutput(Trip, { method: 'jsonSchema' }).invoke('structured');
  },

  async conversation() {
    const chosen = raw(await model.invoke('plain one')).conversation.id;
    const continued = new ChatOpenAI({ model: MODEL, configuration, modelKwargs: { conversation: chosen }, __includeRawResponse: true });
    const second = await continued.invoke('plain two');
    const third = await model.invoke('plain three', { options: { headers: { 'X-Conversation-Id': chosen } } });
    return [second, third].every((answer) => raw(answer).conversation.id === chosen);
  },

  async errors() {
    return {
      bad: await raised(() => model.invoke('status 400')),
      busy: await raised(() => model.invoke('status 429')),
      in_stream: await raised(async () => collect(await model.stream('broken'))),
      cut: await raised(async () => collect(await model.stream('cut'))),
    };
  },

  async embeddings() {
    const vectors = new OpenAIEmbeddings({ model: 'text-embedding-3-small', configuration });
    return (await vectors.embedQuery('the sea')).length;
  },

  async abort() {
    const controller = new AbortController();
    const stream = await model.stream('stall langchain', { signal: controller.signal });
    await stream[Symbol.asyncIterator]().next();
    controller.abort();
    return secondsUntilCancelled('stall langchain');
  },
});
