// Runs scenarios in order and prints a line of JSON for each: shared by all JavaScript clients.

export const MODEL = 'gpt-4o-mini';
export const user = (content) => ({ role: 'user', content });

const TOOL_ARGUMENTS = { weather: 'city', clock: 'zone' };
export const TOOLS = Object.entries(TOOL_ARGUMENTS).map(([name, argument]) => ({
  type: 'function',
  function: {
    name,
    strict: true,
    parameters: {
      type: 'object',
      properties: { [argument]: { type: 'string' } },
      required: [argument],
      additionalProperties: false,
    },
  },
}));

// How long until the model saw that the stream asked for with `prompt` is cancelled; `limit` if it never did.
export async function secondsUntilCancelled(prompt, limit = 5) {
  const began = performance.now();
  const passed = () => (performance.now() - began) / 1000;
  while (passed() < limit) {
    const gone = await (await fetch(`${process.env.MOCK_URL}/gone`)).json();
    if (gone.includes(prompt)) return passed();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return limit;
}

export async function run(scenarios) {
  for (const [scenario, play] of Object.entries(scenarios)) {
    try {
      console.log(JSON.stringify({ scenario, result: (await play()) ?? null }));
    } catch (error) {
      console.log(JSON.stringify({ scenario, error: String(error?.stack ?? error) }));
    }
  }
}
