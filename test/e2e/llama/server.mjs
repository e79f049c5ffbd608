// An OpenAI-compatible server over engine.mjs, with the pages of vLLM that a
// router reads. Usage: node server.mjs MODEL.gguf. Prints {"url"} when ready,
// ends with its standard input, so that it cannot outlive who started it.
import { createServer } from "node:http";
import { Engine, TooLong } from "./engine.mjs";

const started = Date.now() / 1000 - process.uptime();
const modelName = "random";
const engine = await Engine.open(process.argv[2]);
let answers = 0;

const json = (res, status, body) => res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
const failed = (res, status, message) =>
  json(res, status, { error: { message, type: status === 404 ? "NotFoundError" : "BadRequestError", param: null, code: status } });

async function read(req) {
  const parts = [];
  for await (const p of req) parts.push(p);
  return JSON.parse(Buffer.concat(parts).toString());
}

const text = (content) => (typeof content === "string" ? content : (content ?? []).map((p) => p.text ?? "").join(""));

const apis = {
  "/v1/chat/completions": {
    prompt: (b) => b.messages.map((m) => `<${m.role}>\n${text(m.content)}\n`).join("") + "<assistant>\n",
    kind: "chat.completion",
    delta: (content, first) => ({ delta: first ? { role: "assistant", content } : { content } }),
    whole: (content) => ({ message: { role: "assistant", content } }),
  },
  "/v1/completions": {
    prompt: (b) => b.prompt,
    kind: "text_completion",
    delta: (t) => ({ text: t }),
    whole: (t) => ({ text: t }),
  },
};

async function answer(api, body, req, res) {
  if (body.model !== modelName) return failed(res, 404, `The model ${JSON.stringify(body.model)} does not exist.`);
  const gone = new AbortController();
  res.on("close", () => gone.abort());
  const max = body.max_completion_tokens ?? body.max_tokens ?? 16;
  const head = { id: `cmpl-${++answers}`, created: Math.floor(Date.now() / 1000), model: modelName };
  const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const event = (v) => res.write(`data: ${JSON.stringify(v)}\n\n`);
  const chunk = { ...head, object: api.kind === "chat.completion" ? "chat.completion.chunk" : api.kind };
  let whole = "";
  for await (const piece of engine.generate(api.prompt(body), max, gone.signal)) {
    if (typeof piece !== "string") {
      usage.prompt_tokens = piece.prompt;
      usage.prompt_tokens_details = { cached_tokens: piece.cached };
      if (body.stream) res.writeHead(200, { "content-type": "text/event-stream" });
      continue;
    }
    usage.completion_tokens++;
    whole += piece;
    if (body.stream) event({ ...chunk, choices: [{ index: 0, ...api.delta(piece, usage.completion_tokens === 1), finish_reason: null }] });
  }
  if (gone.signal.aborted) return;
  usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
  if (!body.stream) {
    return json(res, 200, { ...head, object: api.kind, choices: [{ index: 0, ...api.whole(whole), finish_reason: "length" }], usage });
  }
  event({ ...chunk, choices: [{ index: 0, ...api.delta("", false), finish_reason: "length" }] });
  if (body.stream_options?.include_usage) event({ ...chunk, choices: [], usage });
  res.end("data: [DONE]\n\n");
}

function metrics() {
  const label = `{engine="0",model_name="${modelName}"}`;
  return [
    `vllm:num_requests_running${label} ${engine.running}`,
    `vllm:num_requests_waiting${label} ${engine.waiting.length}`,
    `vllm:kv_cache_usage_perc${label} ${engine.kvUse}`,
    `vllm:prompt_tokens_total${label} ${engine.promptTokens}`,
    `vllm:generation_tokens_total${label} ${engine.generatedTokens}`,
    `vllm:prefix_cache_queries_total${label} ${engine.promptTokens}`,
    `vllm:prefix_cache_hits_total${label} ${engine.cachedTokens}`,
    `vllm:cache_config_info{block_size="1",engine="0",num_gpu_blocks="${engine.contextSize * engine.context.totalSequences}"} 1`,
    `process_start_time_seconds ${started}`,
    "",
  ].join("\n");
}

const server = createServer(async (req, res) => {
  try {
    if (req.method === "GET" && req.url === "/health") return res.writeHead(200).end();
    if (req.method === "GET" && req.url === "/metrics") return res.writeHead(200, { "content-type": "text/plain; version=0.0.4" }).end(metrics());
    if (req.method === "GET" && req.url === "/v1/models") {
      return json(res, 200, { object: "list", data: [{ id: modelName, object: "model", owned_by: "llama.cpp", max_model_len: engine.contextSize }] });
    }
    const api = apis[req.url];
    if (req.method !== "POST" || !api) return failed(res, 404, "Not Found");
    await answer(api, await read(req), req, res);
  } catch (e) {
    if (res.destroyed) return;
    if (res.headersSent) return res.destroy();
    failed(res, e instanceof TooLong || e instanceof SyntaxError ? 400 : 500, String(e.message ?? e));
  }
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}` })));
process.stdin.on("end", () => process.exit(0)).resume();
