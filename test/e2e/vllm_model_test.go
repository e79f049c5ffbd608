package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// writeModel writes what an engine needs to serve a tiny llama model of random
// weights: its configuration and a tokenizer. Text is read byte by byte, so
// that one letter is one token; the rest of the vocabulary are words, so that
// what the model says is mostly readable.
func writeModel(t *testing.T, dir string) {
	t.Helper()
	const words = 3836
	vocabulary := map[string]int{"<s>": 0, "</s>": 1, "<|a|>": 2, "<|b|>": 3}
	for _, r := range byteLetters() {
		vocabulary[string(r)] = len(vocabulary)
	}
	for i := range words {
		vocabulary[fmt.Sprintf("Ġw%d", i)] = len(vocabulary)
	}
	var added []any
	for i, name := range []string{"<s>", "</s>", "<|a|>", "<|b|>"} {
		added = append(added, map[string]any{
			"id": i, "content": name, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	bytes := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	files := map[string]any{
		"config.json": map[string]any{
			"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16",
			"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
			"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
			"vocab_size": len(vocabulary), "max_position_embeddings": 131072,
			"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
			"bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": false,
		},
		"generation_config.json": map[string]any{"bos_token_id": 0, "eos_token_id": 1},
		"tokenizer.json": map[string]any{
			"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
			"pre_tokenizer": bytes, "post_processor": bytes, "decoder": bytes,
			"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}, "unk_token": nil},
		},
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 131072,
			"chat_template": `{% for m in messages %}<|a|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|b|>
{% endfor %}{% if add_generation_prompt %}<|a|>assistant
{% endif %}`,
		},
	}
	for name, v := range files {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// byteLetters are the letters by which byte-level vocabularies write the 256
// bytes: printable ones as themselves, the others from U+0100 on.
func byteLetters() (letters [256]rune) {
	next := rune(0x100)
	for b := range letters {
		if b > ' ' && b < 0x7f || b >= 0xa1 && b != 0xad {
			letters[b] = rune(b)
		} else {
			letters[b] = next
			next++
		}
	}
	return letters
}
