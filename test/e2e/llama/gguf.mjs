// Writes a llama model of random weights as a GGUF file, without dependencies:
// a byte vocabulary, so that one character of a prompt is one token, a context
// of 8,192 tokens, 1.7 MB. What it says is noise; how long it takes to read a
// prompt, and what its KV cache saves, is real.
//
// Usage: node gguf.mjs OUT.gguf
import { writeFileSync } from "node:fs";

const layers = 2;
const width = 128;
const heads = 4;
const hidden = 300;
const context = 8192;
const control = ["<unk>", "<s>", "</s>"];
const vocabulary = control.length + 256;

const type = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 };
const f32 = 0; // a tensor's element type
const alignment = 32;

class Bytes {
  parts = [];
  length = 0;
  push(b) {
    this.parts.push(b);
    this.length += b.length;
    return this;
  }
  u32(v) {
    const b = Buffer.alloc(4);
    b.writeUInt32LE(v);
    return this.push(b);
  }
  u64(v) {
    const b = Buffer.alloc(8);
    b.writeBigUInt64LE(BigInt(v));
    return this.push(b);
  }
  f32(v) {
    const b = Buffer.alloc(4);
    b.writeFloatLE(v);
    return this.push(b);
  }
  string(s) {
    const b = Buffer.from(s);
    return this.u64(b.length).push(b);
  }
  value(kind, v) {
    if (kind === "string") return this.string(v);
    if (kind === "f32") return this.f32(v);
    if (kind === "bool") return this.push(Buffer.from([v ? 1 : 0]));
    return this.u32(v);
  }
  pad() {
    return this.push(Buffer.alloc((alignment - (this.length % alignment)) % alignment));
  }
}

// xorshift, so that every machine writes the same file.
let state = 0x2545f491;
function random() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 31 - 1;
}

const tokens = [...control, ...Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`)];
const meta = [
  ["general.architecture", "string", "llama"],
  ["general.name", "string", "random"],
  ["llama.context_length", "u32", context],
  ["llama.embedding_length", "u32", width],
  ["llama.block_count", "u32", layers],
  ["llama.feed_forward_length", "u32", hidden],
  ["llama.rope.dimension_count", "u32", width / heads],
  ["llama.attention.head_count", "u32", heads],
  ["llama.attention.head_count_kv", "u32", heads],
  ["llama.attention.layer_norm_rms_epsilon", "f32", 1e-5],
  ["tokenizer.ggml.model", "string", "llama"],
  ["tokenizer.ggml.tokens", "string", tokens],
  ["tokenizer.ggml.scores", "f32", tokens.map(() => 0)],
  ["tokenizer.ggml.token_type", "i32", tokens.map((_, i) => (i === 0 ? 2 : i < control.length ? 3 : 6))], // unknown, control, byte
  ["tokenizer.ggml.unknown_token_id", "u32", 0],
  ["tokenizer.ggml.bos_token_id", "u32", 1],
  ["tokenizer.ggml.eos_token_id", "u32", 2],
  ["tokenizer.ggml.add_space_prefix", "bool", false],
];

// A tensor's dimensions begin with the fastest; scale 0 means all ones.
const tensors = [["token_embd.weight", [width, vocabulary], 1]];
for (let i = 0; i < layers; i++) {
  const scale = 1 / Math.sqrt(width);
  tensors.push(
    [`blk.${i}.attn_norm.weight`, [width], 0],
    [`blk.${i}.attn_q.weight`, [width, width], scale],
    [`blk.${i}.attn_k.weight`, [width, width], scale],
    [`blk.${i}.attn_v.weight`, [width, width], scale],
    [`blk.${i}.attn_output.weight`, [width, width], scale],
    [`blk.${i}.ffn_norm.weight`, [width], 0],
    [`blk.${i}.ffn_gate.weight`, [width, hidden], scale],
    [`blk.${i}.ffn_up.weight`, [width, hidden], scale],
    [`blk.${i}.ffn_down.weight`, [hidden, width], 1 / Math.sqrt(hidden)],
  );
}
tensors.push(["output_norm.weight", [width], 0], ["output.weight", [width, vocabulary], 1]);

const head = new Bytes().push(Buffer.from("GGUF")).u32(3).u64(tensors.length).u64(meta.length);
for (const [name, kind, v] of meta) {
  head.string(name);
  if (!Array.isArray(v)) {
    head.u32(type[kind]).value(kind, v);
    continue;
  }
  head.u32(type.array).u32(type[kind]).u64(v.length);
  for (const x of v) head.value(kind, x);
}
const data = new Bytes();
for (const [name, dims, scale] of tensors) {
  head.string(name).u32(dims.length);
  for (const d of dims) head.u64(d);
  head.u32(f32).u64(data.length);
  const weights = new Float32Array(dims.reduce((a, b) => a * b));
  for (let i = 0; i < weights.length; i++) weights[i] = scale === 0 ? 1 : scale * random();
  data.push(Buffer.from(weights.buffer)).pad();
}
head.pad();
writeFileSync(process.argv[2], Buffer.concat([...head.parts, ...data.parts]));
