// Usage: node compare.mjs DIRECT_URL AGENT_URL. Runs every scenario at both and
// prints one JSON line each: {"name", "ok", "detail"}. Exit 1 when one differs.
//
// For engines of others, by comma-separated lists: E2E_VOLATILE names more
// members that differ from answer to answer, E2E_ABSENT the scenarios that the
// engine cannot do. Those must fail at both, and with the same error. With
// E2E_MERGE a stream's pieces of text may be cut differently: an engine puts
// several tokens into one event when it is behind.
import { isDeepStrictEqual } from "node:util";
import { abort, abortUnary, scenarios } from "./scenarios.mjs";

const [direct, agent] = process.argv.slice(2);
// What a cache does to a count, and the clock, may differ; nothing else may.
const list = (name) => (process.env[name] ?? "").split(",").filter(Boolean);
const volatile = new Set([
  ...["cached_tokens", "cache_read_input_tokens", "created", "created_at", "_request_id", "error_message"],
  ...list("E2E_VOLATILE"),
]);
const merge = Boolean(process.env.E2E_MERGE);
const absent = new Set(list("E2E_ABSENT"));

// The agent tags the ids of stored objects, as resp_<site>.<cluster>.<mac>.<id>.
const tag = /\b(resp|conv)_[a-z0-9-]+\.[0-9a-f]{8}\.(?:[0-9a-f]{16})?\./g;

// merged is a stream without its cuts: all its text, its kinds of events in
// order, and what came last.
function merged(v) {
  if (!Array.isArray(v) || v.length === 0 || typeof v[0] !== "object") return v;
  if (Array.isArray(v[0])) return v.map(merged);
  const piece = (e) => e.choices?.map((c) => c.delta?.content ?? c.text ?? "").join("") ?? e.delta?.text ?? (typeof e.delta === "string" ? e.delta : "");
  return {
    text: v.map(piece).join(""),
    kinds: [...new Set(v.map((e) => e.type ?? e.object))],
    finish: v.flatMap((e) => e.choices ?? []).map((c) => c.finish_reason).filter(Boolean),
    last: { ...v.at(-1), choices: undefined },
  };
}

function plain(v) {
  if (merge) v = merged(v);
  const text = JSON.stringify(v, (k, x) => (volatile.has(k) ? undefined : x));
  return JSON.parse(text.replace(tag, "$1_"));
}

let bad = 0;
function report(name, ok, detail) {
  if (!ok) bad++;
  console.log(JSON.stringify({ name, ok, detail: ok ? undefined : detail }));
}

// refusal is how a scenario fails, or undefined when it does not.
async function refusal(run, base) {
  try {
    await run(base);
  } catch (e) {
    return { kind: e.constructor.name, status: e.status, message: plain(e.message ?? "") };
  }
}

for (const [name, run] of Object.entries(scenarios)) {
  if (absent.has(name)) {
    const [want, got] = [await refusal(run, direct), await refusal(run, agent)];
    report(name, want?.status >= 400 && isDeepStrictEqual(want, got), { absent: true, want, got });
    continue;
  }
  try {
    const want = plain(await run(direct));
    const got = plain(await run(agent));
    const answered = !want.failed || want.status >= 400; // a broken connection proves nothing
    report(name, answered && isDeepStrictEqual(want, got), { want: JSON.stringify(want).slice(0, 600), got: JSON.stringify(got).slice(0, 600) });
  } catch (e) {
    report(name, false, String(e.stack ?? e));
  }
}
for (const [name, run] of Object.entries({ abort, abortUnary })) {
  try {
    const r = await run(agent);
    report(name, r.chunks >= 5 || r.failed === true, r);
  } catch (e) {
    report(name, false, String(e.stack ?? e));
  }
}
process.exit(bad ? 1 : 0);
