// The Vercel AI SDK: what a user of it sees, through `@ai-sdk/openai` and `@ai-sdk/openai-compatible`.
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import { MODEL } from './scenarios.mjs';
const baseURL = process.env.OPENAI_BASE_URL, apiKey = process.env.OPENAI_API_KEY;
const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({ name: 'gateway', baseURL, apiKey, includeUsage: true,
  metadataExtractor: { extractMetadata: async ({ parsedBody }) => ({ gateway: parsedBody.response_metadata }), createStreamExtractor: () => { let m; return { processChunk(c) { m = c?.response_metadata ?? m }, buildMetadata() { return { gateway: m } } } } } });
for (const model of [openai.chat(MODEL), compatible(MODEL)]) {
  const a = await generateText({ model, prompt: 'plain', maxRetries: 0 });
  console.log(a.text, Object.keys(a.response), JSON.stringify(a.response.headers).slice(0, 300), JSON.stringify(a.response.body)?.slice(-900), JSON.stringify(a.usage), JSON.stringify(a.providerMetadata)?.slice(0, 500));
  const s = streamText({ model, prompt: 'plain s', includeRawChunks: true });
  const parts = []; for await (const p of s.fullStream) parts.push(p);
  console.log(parts.map(p => p.type).join(' '), await s.text, JSON.stringify(await s.providerMetadata)?.slice(0, 300), JSON.stringify(await s.usage));
  console.log(JSON.stringify(parts.filter(p => p.type === 'raw').at(-1)).slice(0, 300));
}
console.log(Object.keys(await import('ai')).filter(k => /step/i.test(k)));
