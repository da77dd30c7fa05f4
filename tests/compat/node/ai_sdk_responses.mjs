// The Vercel AI SDK's default for OpenAI, which is Responses: what a user of it sees.
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import { MODEL, run } from './scenarios.mjs';

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const common = { model: openai(MODEL), maxRetries: 0 };
const Trip = z.object({ city: z.string(), days: z.number() });
const tools = {
  weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async () => 'weather done' }),
  clock: tool({ inputSchema: z.object({ zone: z.string() }), execute: async () => 'clock done' }),
};
const named = (steps) => steps.flatMap((step) => step.toolCalls.map((call) => [call.toolName, call.input]));

await run({
  async plain() {
    const { text, response } = await generateText({ prompt: 'plain', ...common });
    return { text, cost: Number(response.headers['x-gateway-response-cost']) };
  },
  async streamed() {
    return await streamText({ prompt: 'plain streamed', ...common }).text;
  },
  async tool_loop() {
    const { text, steps } = await generateText({ prompt: 'tools', tools, stopWhen: isStepCount(3), ...common });
    return { text, calls: named(steps) };
  },
  async parsed() {
    return (await generateText({ prompt: 'trip', output: Output.object({ schema: Trip }), ...common })).output;
  },
});
