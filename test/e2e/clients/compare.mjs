// Usage: node compare.mjs DIRECT_URL AGENT_URL. Runs every scenario at both and
// prints one JSON line each: {"name", "ok", "detail"}. Exit 1 when one differs.
import { isDeepStrictEqual } from "node:util";
import { abort, abortUnary, scenarios } from "./scenarios.mjs";

const [direct, agent] = process.argv.slice(2);
// What a cache does to a count, and the clock, may differ; nothing else may.
const volatile = new Set(["cached_tokens", "cache_read_input_tokens", "created", "created_at", "_request_id", "error_message"]);

// The agent tags the ids of stored objects, as resp_<site>.<cluster>.<mac>.<id>.
const tag = /\b(resp|conv)_[a-z0-9-]+\.[0-9a-f]{8}\.(?:[0-9a-f]{16})?\./g;

function plain(v) {
  const text = JSON.stringify(v, (k, x) => (volatile.has(k) ? undefined : x));
  return JSON.parse(text.replace(tag, "$1_"));
}

let bad = 0;
function report(name, ok, detail) {
  if (!ok) bad++;
  console.log(JSON.stringify({ name, ok, detail: ok ? undefined : detail }));
}

for (const [name, run] of Object.entries(scenarios)) {
  try {
    const want = plain(await run(direct));
    const got = plain(await run(agent));
    report(name, isDeepStrictEqual(want, got), { want: JSON.stringify(want).slice(0, 600), got: JSON.stringify(got).slice(0, 600) });
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
