package calibrate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// engine is the one being measured.
type engine struct {
	Options
	rnd   *rand.Rand
	clock func() time.Duration
	words int // of a prompt, in words mode
}

// sampled is one request's outcome.
type sampled struct {
	seconds float64
	tokens  int // as the engine counted the prompt
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

func (e *engine) get(ctx context.Context, url string) ([]byte, error) {
	return e.do(ctx, http.MethodGet, url, nil)
}

func (e *engine) do(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.APIKey)
	}
	resp, err := e.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, strings.TrimSpace(string(answer[:min(len(answer), 300)])))
	}
	return answer, nil
}

// busySeries are the gauges of requests in an engine, of vLLM and SGLang.
var busySeries = []string{
	"vllm:num_requests_running", "vllm:num_requests_waiting",
	"sglang:num_running_reqs", "sglang:num_queue_reqs",
}

// idle returns nil when the metrics say that no request is in the engine. It
// looks again for a while, since an engine may count a request for a moment
// after its answer.
func (e *engine) idle(ctx context.Context) error {
	for try := 0; ; try++ {
		page, err := e.get(ctx, e.Metrics)
		var n float64
		seen := false
		if err == nil {
			n, seen = requests(page)
		}
		switch {
		case !seen && e.Unseen:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %v", ErrUnseen, err)
		case !seen:
			return fmt.Errorf("%w: %s has none of %s", ErrUnseen, e.Metrics, strings.Join(busySeries, ", "))
		case n == 0:
			return nil
		case try == 20:
			return fmt.Errorf("%w: %v requests are running or waiting there", ErrBusy, n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// requests sums the gauges of requests over all their labels.
func requests(page []byte) (n float64, seen bool) {
	s := bufio.NewScanner(bytes.NewReader(page))
	s.Buffer(nil, maxAnswer)
	for s.Scan() {
		line := s.Text()
		for _, name := range busySeries {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
				continue
			}
			if rest[0] == '{' {
				if rest = rest[strings.LastIndexByte(rest, '}')+1:]; rest == "" {
					continue
				}
			}
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				continue
			}
			if v, err := strconv.ParseFloat(fields[0], 64); err == nil && !math.IsNaN(v) {
				n += v
				seen = true
			}
		}
	}
	return n, seen
}

func (e *engine) firstModel(ctx context.Context) (string, error) {
	answer, err := e.get(ctx, e.URL+"/v1/models")
	if err != nil {
		return "", err
	}
	var models struct {
		Data []struct{ ID string }
	}
	if err := json.Unmarshal(answer, &models); err != nil {
		return "", fmt.Errorf("%s/v1/models: %v", e.URL, err)
	}
	if len(models.Data) == 0 {
		return "", fmt.Errorf("%s/v1/models names no model", e.URL)
	}
	return models.Data[0].ID, nil
}

// fit finds, in words mode, how many words make the prompt: the engine's own
// count corrects the first guess.
func (e *engine) fit(ctx context.Context) error {
	if !e.Words {
		return nil
	}
	e.words = e.Tokens / 2
	words, tokens := 0, 0 // of all tries: one prompt's words are longer than another's
	for range 4 {
		s, err := e.sample(ctx)
		if err != nil {
			return err
		}
		if s.tokens <= 0 {
			return fmt.Errorf("the engine reports no usage, so the tokens of a prompt of words are not known")
		}
		words += e.words
		tokens += s.tokens
		e.words = max(1, int(math.Round(float64(e.Tokens)*float64(words)/float64(tokens))))
	}
	return nil // what is off still, the engine's count makes good
}

// prompt is a text or token ids that the engine has never seen.
func (e *engine) prompt() any {
	if !e.Words {
		ids := make([]int, e.Tokens)
		for i := range ids {
			ids[i] = 256 + e.rnd.IntN(e.Vocabulary-256) // the first ids are often special
		}
		return ids
	}
	var b strings.Builder
	for range e.words {
		for range 2 + e.rnd.IntN(6) {
			b.WriteByte(byte('a' + e.rnd.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// sample sends one prompt and times its answer of one token.
func (e *engine) sample(ctx context.Context) (sampled, error) {
	body, err := json.Marshal(map[string]any{
		"model": e.Model, "prompt": e.prompt(), "max_tokens": 1, "temperature": 0, "stream": false,
	})
	if err != nil {
		return sampled{}, err
	}
	start := e.clock()
	answer, err := e.do(ctx, http.MethodPost, e.URL+"/v1/completions", body)
	took := e.clock() - start
	if err != nil {
		return sampled{}, err
	}
	var a struct {
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
			Details      struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return sampled{}, fmt.Errorf("%s/v1/completions: the answer is not JSON: %v", e.URL, err)
	}
	s := sampled{took.Seconds(), a.Usage.PromptTokens}
	if s.tokens == 0 && !e.Words {
		s.tokens = e.Tokens
	}
	if c := a.Usage.Details.CachedTokens; c > s.tokens/50 {
		return s, fmt.Errorf("%w: %d of %d tokens", ErrCached, c, s.tokens)
	}
	if off := float64(s.tokens)/float64(e.Tokens) - 1; !e.Words && math.Abs(off) > 0.01 {
		return s, fmt.Errorf("the engine counted %d tokens where %d were sent", s.tokens, e.Tokens)
	}
	return s, nil
}
