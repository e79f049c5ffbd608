// Package modelserver is a stand-in for a model server: it answers like vLLM
// (or SGLang) wherever routing can feel the difference, and computes nothing.
//
// What is modelled: a prefix cache of limited size, prefill as one shared
// budget of tokens per second worked off in chunks first come first served,
// decode in a batch of limited width, the waiting queue, metrics, stored
// responses and conversations, aborts, and failures on demand. What is not: a
// tokenizer (a token is four bytes of the rendered prompt) and sense (words
// follow from a hash of the prompt, so the same request gets the same text
// from every server).
//
// Demo, tests and benchmarks use it. The agent depends on nothing here.
package modelserver
