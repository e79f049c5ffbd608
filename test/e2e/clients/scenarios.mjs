// What a client does, as functions from a base URL to a plain result that can
// be compared: once straight at an engine, once through the agent.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const model = process.env.E2E_MODEL ?? "stand-in";
const openai = (base) => new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = (base) => new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });

const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const weather = {
  name: "get_weather",
  description: "Current weather of a city",
  schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const long = (n, seed) => `${seed} ` + "The quick brown fox jumps over the lazy dog. ".repeat(Math.ceil(n / 45));

async function collect(stream) {
  const events = [];
  for await (const e of stream) events.push(e);
  return events;
}

export const scenarios = {
  models: async (base) => (await collect(await openai(base).models.list())).map((m) => m.id),

  chat: (base) =>
    openai(base).chat.completions.create({
      model,
      max_tokens: 12,
      messages: [
        { role: "system", content: long(2000, "chat") },
        { role: "user", content: "Grüße, what is 2+2? 🦊" },
      ],
    }),

  chatStream: async (base) =>
    collect(
      await openai(base).chat.completions.create({
        model,
        max_tokens: 40,
        stream: true,
        stream_options: { include_usage: true },
        messages: [{ role: "user", content: long(3000, "stream") }],
      }),
    ),

  chatTools: (base) =>
    openai(base).chat.completions.create({
      model,
      max_tokens: 30,
      tool_choice: "required",
      tools: [
        { type: "function", function: { name: weather.name, description: weather.description, parameters: weather.schema } },
      ],
      messages: [
        { role: "user", content: "Weather in Oslo?" },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "call_1", type: "function", function: { name: weather.name, arguments: '{"city":"Oslo"}' } }],
        },
        { role: "tool", tool_call_id: "call_1", content: "12 degrees" },
        { role: "user", content: "And in Rome?" },
      ],
    }),

  chatImages: (base) =>
    openai(base).chat.completions.create({
      model,
      max_tokens: 8,
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: long(800, "image") },
            { type: "image_url", image_url: { url: "https://example.com/cat.png" } },
            { type: "image_url", image_url: { url: `data:image/png;base64,${pixel}` } },
            { type: "text", text: "What differs?" },
          ],
        },
      ],
    }),

  completions: (base) => openai(base).completions.create({ model, max_tokens: 10, prompt: long(1500, "completions") }),

  completionsStream: async (base) =>
    collect(await openai(base).completions.create({ model, max_tokens: 20, stream: true, prompt: "Once upon a time" })),

  embeddings: (base) =>
    openai(base).embeddings.create({ model, input: "one short text", encoding_format: "float" }),

  responses: (base) =>
    openai(base).responses.create({ model, max_output_tokens: 12, instructions: "Be brief.", input: long(1200, "responses") }),

  responsesStream: async (base) =>
    collect(
      await openai(base).responses.create({
        model,
        max_output_tokens: 25,
        stream: true,
        input: [{ role: "user", content: [{ type: "input_text", text: long(1000, "items") }] }],
      }),
    ),

  messages: (base) =>
    anthropic(base).messages.create({
      model,
      max_tokens: 12,
      system: long(1500, "messages"),
      messages: [{ role: "user", content: "Hello" }],
    }),

  messagesStream: async (base) =>
    collect(
      await anthropic(base).messages.create({
        model,
        max_tokens: 30,
        stream: true,
        system: [{ type: "text", text: long(1500, "blocks"), cache_control: { type: "ephemeral" } }],
        tools: [{ name: weather.name, description: weather.description, input_schema: weather.schema }],
        messages: [
          {
            role: "user",
            content: [
              { type: "text", text: "What is on it?" },
              { type: "image", source: { type: "base64", media_type: "image/png", data: pixel } },
            ],
          },
        ],
      }),
    ),

  countTokens: (base) =>
    anthropic(base).messages.countTokens({ model, messages: [{ role: "user", content: long(500, "count") }] }),

  unknownModel: (base) => failure(openai(base).chat.completions.create({ model: "nobody", messages: [{ role: "user", content: "x" }] })),

  unknownModelAnthropic: (base) =>
    failure(anthropic(base).messages.create({ model: "nobody", max_tokens: 1, messages: [{ role: "user", content: "x" }] })),

  badRequest: (base) => failure(openai(base).chat.completions.create({ model, messages: [] })),

  bigPrompt: (base) =>
    openai(base).chat.completions.create({ model, max_tokens: 4, messages: [{ role: "user", content: long(1 << 20, "big") }] }),

  concurrent: (base) =>
    Promise.all(
      Array.from({ length: 32 }, (_, i) =>
        openai(base).chat.completions
          .create({ model, max_tokens: 16, stream: true, messages: [{ role: "user", content: long(600 + 40 * i, `c${i}`) }] })
          .then(collect),
      ),
    ),
};

// failure turns the error that an SDK must throw into data.
async function failure(promise) {
  try {
    await promise;
    return { failed: false };
  } catch (e) {
    return { failed: true, kind: e.constructor.name, status: e.status };
  }
}

// abort leaves a stream after a few chunks, as a user who closes a tab does.
export async function abort(base) {
  const controller = new AbortController();
  const stream = await openai(base).chat.completions.create(
    { model, max_tokens: 100000, min_tokens: 100000, stream: true, messages: [{ role: "user", content: long(400, "abort") }] },
    { signal: controller.signal },
  );
  let n = 0;
  try {
    for await (const _ of stream) if (++n === 5) controller.abort();
  } catch (e) {
    if (e.name !== "AbortError" && e.constructor.name !== "APIUserAbortError") throw e;
  }
  return { chunks: n };
}

// abortUnary gives up on an answer that is not streamed.
export async function abortUnary(base) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 300);
  return failure(
    openai(base).chat.completions.create(
      { model, max_tokens: 100000, min_tokens: 100000, messages: [{ role: "user", content: long(400, "unary") }] },
      { signal: controller.signal },
    ),
  );
}
