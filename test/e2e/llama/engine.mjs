// llama.cpp with a few sequences, each with a KV cache of its own that stays
// when a request ends: the next prompt goes to the sequence that holds the
// longest beginning of it, and only the rest is read.
import { getLlama, TokenBias } from "node-llama-cpp";

export class TooLong extends Error {}

export class Engine {
  constructor(model, context, sequences) {
    this.model = model;
    this.context = context;
    this.sequences = Array.from({ length: sequences }, () => ({ kv: context.getSequence(), used: 0 }));
    this.idle = [...this.sequences];
    this.waiting = []; // resolvers, first come first served
    this.clock = 0;
    this.running = 0;
    this.promptTokens = 0;
    this.cachedTokens = 0;
    this.generatedTokens = 0;
    this.printable = new TokenBias(model.tokenizer);
    for (let t = 0; t < model.fileInfo.metadata.tokenizer.ggml.tokens.length; t++) {
      const text = model.detokenize([t]);
      if (!/^[ -~]$/.test(text)) this.printable.set(t, "never");
    }
  }

  static async open(path, { sequences = 4, threads = 1 } = {}) {
    const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, logLevel: "error", maxThreads: threads });
    const model = await llama.loadModel({ modelPath: path });
    const context = await model.createContext({ contextSize: model.trainContextSize, sequences, threads });
    return new Engine(model, context, sequences);
  }

  get contextSize() {
    return this.model.trainContextSize;
  }

  // kvUse is the share of the cache that holds something.
  get kvUse() {
    return this.sequences.reduce((n, s) => n + s.kv.nextTokenIndex, 0) / (this.contextSize * this.context.totalSequences);
  }

  // acquire waits for a free sequence and takes the one that knows most of
  // the prompt, or the one longest unused when none knows much of it.
  async acquire(tokens, signal) {
    while (this.idle.length === 0) {
      await new Promise((resolve, reject) => {
        this.waiting.push(resolve);
        signal.addEventListener("abort", () => {
          this.waiting = this.waiting.filter((w) => w !== resolve);
          reject(signal.reason);
        });
      });
    }
    const oldest = this.idle.reduce((a, b) => (b.used < a.used ? b : a));
    const known = (s) => s.kv.compareContextTokens(tokens).firstDifferentIndex;
    const best = this.idle.reduce((a, b) => (known(b) > known(a) ? b : a));
    // A few words in common are not worth forgetting a long prompt.
    const s = 2 * known(best) >= Math.min(tokens.length, best.kv.nextTokenIndex) && known(best) > 0 ? best : oldest;
    this.idle.splice(this.idle.indexOf(s), 1);
    s.used = ++this.clock;
    return s;
  }

  release(s) {
    this.idle.push(s);
    this.waiting.shift()?.();
  }

  // generate yields {cached, prompt} once the prompt is placed, and then a
  // piece of text for each token. Leaving the loop frees the sequence.
  async *generate(prompt, maxTokens, signal) {
    const tokens = [this.model.tokens.bos, ...this.model.tokenize(prompt)];
    if (tokens.length + maxTokens > this.contextSize) {
      throw new TooLong(`${tokens.length} prompt tokens and ${maxTokens} more do not fit ${this.contextSize}`);
    }
    const s = await this.acquire(tokens, signal);
    this.running++;
    try {
      // The last token is always read anew: its logits are needed.
      const cached = Math.min(s.kv.compareContextTokens(tokens).firstDifferentIndex, tokens.length - 1);
      if (s.kv.nextTokenIndex > cached) await s.kv.eraseContextTokenRanges([{ start: cached, end: s.kv.nextTokenIndex }]);
      if (s.kv.nextTokenIndex !== cached) throw new Error(`${s.kv.nextTokenIndex} tokens in the cache, expected ${cached}`);
      this.promptTokens += tokens.length;
      this.cachedTokens += cached;
      yield { cached, prompt: tokens.length };
      let n = 0;
      for await (const t of s.kv.evaluate(tokens.slice(cached), { temperature: 0, tokenBias: this.printable, yieldEogToken: true })) {
        if (signal.aborted) return;
        this.generatedTokens++;
        yield this.model.detokenize([t]) || " ";
        if (++n >= maxTokens) return;
      }
    } finally {
      this.running--;
      this.release(s);
    }
  }
}
