// Runs one call of the openai package for each line on standard input:
// {"base", "op": "responses.retrieve", "args": [...]}, and prints one line for
// each: {"value"}, {"events"} of a stream, or {"error": {status, message, ...}}.
import { createInterface } from "node:readline";
import OpenAI from "openai";

async function call({ base, op, args }) {
  let target = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
  const path = op.split(".");
  const method = path.pop();
  for (const name of path) target = target[name];
  try {
    const value = await target[method](...args);
    if (value?.constructor?.name === "Stream") {
      const events = [];
      for await (const e of value) events.push(e);
      return { events };
    }
    // A page holds its client besides: only what came over the wire counts.
    if (Array.isArray(value?.data)) return { value: { data: value.data, last_id: value.last_id, has_more: value.has_more } };
    return { value: value ?? null };
  } catch (e) {
    if (e.status === undefined) throw e;
    return {
      error: {
        status: e.status,
        code: e.code,
        message: e.message,
        retry_after: e.headers?.get("retry-after"),
        kind: e.constructor.name,
      },
    };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(JSON.stringify(await call(JSON.parse(line))));
  } catch (e) {
    console.log(JSON.stringify({ thrown: String(e.stack ?? e) }));
  }
}
