// The Vercel AI SDK: what a user of it sees, through `@ai-sdk/openai` and `@ai-sdk/openai-compatible`.
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import { MODEL, run, secondsUntilCancelled } from './scenarios.mjs';

const baseURL = process.env.OPENAI_BASE_URL;
const apiKey = process.env.OPENAI_API_KEY;
const openai = createOpenAI({ baseURL, apiKey });

// Keeps the bill of an answer, or the last that a stream carried, as `providerMetadata.gateway`.
const metadataExtractor = {
  extractMetadata: async ({ parsedBody }) => ({ gateway: parsedBody.response_metadata }),
  createStreamExtractor() {
    let bill;
    return {
      processChunk: (chunk) => void (bill = chunk?.response_metadata ?? bill),
      buildMetadata: () => ({ gateway: bill }),
    };
  },
};
const compatible = createOpenAICompatible({
  name: 'gateway',
  baseURL,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
  metadataExtractor,
});

const Trip = z.object({ city: z.string(), days: z.number() });
const tools = {
  weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async () => 'weather done' }),
  clock: tool({ inputSchema: z.object({ zone: z.string() }), execute: async () => 'clock done' }),
};
const common = { maxRetries: 0 };

async function lookedUp(headers) {
  const url = `${baseURL}/chat/completions/${headers['x-request-id']}`;
  const stored = await (await fetch(url, { headers: { Authorization: `Bearer ${apiKey}` } })).json();
  return stored.response_metadata.cost.total_cost;
}

async function collect(result) {
  const parts = [];
  for await (const part of result.fullStream) parts.push(part);
  return parts;
}

const textOf = (parts) => parts.filter((part) => part.type === 'text-delta').map((part) => part.text).join('');
const rawBill = (parts) =>
  parts.filter((part) => part.type === 'raw' && part.rawValue.response_metadata).at(-1).rawValue.response_metadata.cost.total_cost;
const failures = (parts) => parts.filter((part) => part.type === 'error').length;
const named = (steps) => steps.flatMap((step) => step.toolCalls.map((call) => [call.toolName, call.input]));

async function raised(play) {
  try {
    await play();
  } catch (error) {
    return [error.name, error.statusCode ?? null, error.data?.error?.code ?? null];
  }
  return null;
}

for (const [provider, model] of Object.entries({ openai: openai.chat(MODEL), compatible: compatible(MODEL) })) {
  const scenarios = {
    async plain() {
      const answer = await generateText({ model, prompt: 'plain', ...common });
      return {
        text: answer.text,
        header_cost: Number(answer.response.headers['x-gateway-response-cost']),
        total: await lookedUp(answer.response.headers),
        tokens: answer.usage.totalTokens,
        cost: answer.usage.raw?.cost ?? null,
        extracted: answer.providerMetadata?.gateway?.cost.total_cost ?? null,
      };
    },

    async stream() {
      const result = streamText({ model, prompt: 'plain stream', includeRawChunks: true, ...common });
      const parts = await collect(result);
      return {
        text: textOf(parts),
        total: rawBill(parts),
        looked_up: await lookedUp((await result.response).headers),
        tokens: (await result.usage).totalTokens,
        finish: await result.finishReason,
        extracted: (await result.providerMetadata)?.gateway?.cost.total_cost ?? null,
        errors: failures(parts),
      };
    },

    async odd_stream() {
      const parts = await collect(streamText({ model, prompt: 'odd', ...common }));
      return { text: textOf(parts), errors: failures(parts) };
    },

    async tool_loop() {
      const answer = await generateText({ model, prompt: 'tools plain', tools, stopWhen: isStepCount(3), ...common });
      return { text: answer.text, calls: named(answer.steps), steps: answer.steps.length };
    },

    async tool_loop_streamed() {
      const result = streamText({ model, prompt: 'tools streamed', tools, stopWhen: isStepCount(3), ...common });
      const parts = await collect(result);
      const steps = await result.steps;
      return { text: textOf(parts), calls: named(steps), steps: steps.length };
    },

    async structured() {
      const output = Output.object({ schema: Trip });
      const answer = await generateText({ model, prompt: 'structured', output, ...common });
      const result = streamText({ model, prompt: 'structured streamed', output, ...common });
      await collect(result);
      return { parsed: answer.output, streamed: await result.output };
    },

    async reasoning() {
      const answer = await generateText({ model, prompt: 'reasoning', ...common });
      return { text: answer.text, reasoning: answer.reasoningText ?? null };
    },

    async conversation() {
      const first = await generateText({ model, prompt: 'plain one', ...common });
      const chosen = first.response.headers['x-conversation-id'];
      const headers = { 'X-Conversation-Id': chosen };
      const second = await generateText({ model, prompt: 'plain two', headers, ...common });
      const document = { title: 'Contract', content: 'Clause 14 says that the clause after it is void.' };
      const providerOptions = { gateway: { attachments: [document] } };
      const third = await generateText({ model, prompt: 'plain three', headers, providerOptions, ...common });
      const used = third.providerMetadata?.gateway?.context_utilization.artifacts_processed;
      return {
        same: [second, third].every((one) => one.response.headers['x-conversation-id'] === chosen),
        attached: used?.map((one) => one.source) ?? null,
      };
    },

    async errors() {
      const broken = streamText({ model, prompt: 'broken', onError() {}, ...common });
      const cut = streamText({ model, prompt: 'cut', onError() {}, ...common });
      return {
        bad: await raised(() => generateText({ model, prompt: 'status 400', ...common })),
        busy: await raised(() => generateText({ model, prompt: 'status 429', ...common })),
        unknown: await raised(() => generateText({ model, prompt: 'plain', headers: { 'X-Conversation-Id': 'conv_unknown' }, ...common })),
        in_stream: failures(await collect(broken)),
        cut: failures(await collect(cut)),
      };
    },

    async retries() {
      return (await generateText({ model, prompt: `busy ${provider}`, maxRetries: 2 })).text;
    },

    async abort() {
      const controller = new AbortController();
      const prompt = `stall ai ${provider}`;
      const result = streamText({ model, prompt, abortSignal: controller.signal, onError() {}, ...common });
      for await (const part of result.fullStream) if (part.type === 'text-delta') break;
      controller.abort();
      return secondsUntilCancelled(prompt);
    },
  };
  await run(Object.fromEntries(Object.entries(scenarios).map(([name, play]) => [`${provider}.${name}`, play])));
}

await run({
  async embeddings() {
    const { embedding } = await embed({ model: openai.embedding('text-embedding-3-small'), value: 'the sea' });
    const other = await embed({ model: compatible.embeddingModel('text-embedding-3-small'), value: 'the sea' });
    return [embedding.length, other.embedding.length];
  },

  async responses() {
    return (await generateText({ model: openai.responses(MODEL), prompt: 'plain', ...common })).text;
  },
});
