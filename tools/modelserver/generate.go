package modelserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
)

// generation is one answer in the making.
type generation struct {
	id      string // without the API's prefix
	model   string
	created int64
	fault   Fault
	prompt  int // tokens
	answer  answer
	seq     *seq // nil in instant mode: all of the answer is there
	text    string
}

// usage in tokens.
type usage struct {
	prompt, cached, answer int
}

// usage is right once the first token is there.
func (g *generation) usage(answer int) usage {
	u := usage{prompt: g.prompt, answer: answer}
	if g.seq != nil {
		u.cached = g.seq.cached
	}
	return u
}

// wait blocks until more than have tokens are there and returns how many are.
func (g *generation) wait(ctx context.Context, have int) (int, error) {
	if g.seq == nil {
		return g.answer.pieces, nil
	}
	return g.seq.wait(ctx, have)
}

// call is one request to an endpoint that generates, as its handler sees it.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	ctx  context.Context // ends when the client leaves or the server closes
	body []byte
	req  request
	fail func(*refusal, http.ResponseWriter) // the API's error shape
}

// endpoint wraps what all endpoints that generate share: the body, failures
// on demand, the end of the request. api answers, or refuses.
func (s *Server) endpoint(route string, fail func(*refusal, http.ResponseWriter), api func(*call) *refusal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.count(route)
		var body []byte
		var err error
		if s.cfg.Instant { // nothing keeps the body there
			b := s.bodies.Get().(*bytes.Buffer)
			defer s.bodies.Put(b)
			b.Reset()
			_, err = b.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
			body = b.Bytes()
		} else {
			body, err = readBody(w, r)
		}
		if err != nil {
			fail(refuse(http.StatusBadRequest, "body: %v", err), w)
			return
		}
		f := s.fault.Load().requested(r.Header)
		if f != (Fault{}) {
			f.wait(r.Context(), 0)
			if r.Context().Err() != nil {
				return
			}
			f.cut(0)
			if f.Status != 0 {
				fail(refuse(f.Status, "failed on demand"), w)
				return
			}
		}
		c := &call{w: w, r: r, body: body, fail: fail, ctx: r.Context()}
		if s.cfg.Instant {
			if err := c.req.scan(body); err != nil {
				fail(refuse(http.StatusBadRequest, "%v", err), w)
				return
			}
		} else {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
			c.ctx = ctx
			if err := json.Unmarshal(body, &c.req); err != nil {
				fail(refuse(http.StatusBadRequest, "%v", err), w)
				return
			}
		}
		switch no := api(c); {
		case no == nil:
		case no.full && c.req.Stream && s.late(route):
			s.refuseInside(c, no)
		default:
			fail(no, w)
		}
	}
}

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// begin plans the answer to a rendered prompt; nothing runs yet.
func (s *Server) begin(c *call, p *rendering) (*generation, *refusal) {
	g := &generation{model: c.req.Model, created: s.created(), fault: s.fault.Load().requested(c.r.Header)}
	if g.model == "" {
		g.model = s.cfg.Models[0]
	}
	if !slices.Contains(s.cfg.Models, g.model) {
		no := refuse(http.StatusNotFound, "The model `%s` does not exist.", g.model)
		no.param = "model"
		return nil, no
	}
	if g.fault.Full || s.cfg.MaxQueued > 0 && s.engine.snapshot().Waiting >= s.cfg.MaxQueued {
		return nil, queueFull()
	}
	limit, given := c.req.limit()
	if given && limit < 1 {
		return nil, refuse(http.StatusBadRequest, "max_tokens must be at least 1, got %d.", limit)
	}
	if s.cfg.Instant {
		seed := hash(crc32.Checksum(c.body, crcTable)).mix(nil)
		g.prompt = len(c.body) / bytesPerToken
		g.answer = newAnswer(seed, s.cfg.AnswerTokens, limit, 0, c.req.IgnoreEOS)
		g.id = s.newID(c.r.Header, seed)
		return g, nil
	}

	prompt := p.Bytes()
	g.prompt = max(1, (len(prompt)+bytesPerToken-1)/bytesPerToken)
	salt := hash(0).mix([]byte(g.model)).mix([]byte(c.req.CacheSalt))
	_, seed := chain(hash(0), prompt) // of the prompt alone: the salt shapes no answer
	if t, ok := c.req.wantsTool(p.last); ok {
		g.answer = newCall(seed, t, limit)
	} else {
		g.answer = newAnswer(seed, s.cfg.AnswerTokens, limit, c.req.MinTokens, c.req.IgnoreEOS)
	}
	if total := g.prompt + max(limit, g.answer.pieces); total > s.cfg.MaxModelLen || !s.engine.fits(g.prompt, g.answer.pieces) {
		return nil, refuse(http.StatusBadRequest,
			"This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the messages, %d in the completion).",
			min(s.cfg.MaxModelLen, s.cfg.CacheBlocks*BlockTokens), total, g.prompt, total-g.prompt)
	}
	g.id = s.newID(c.r.Header, seed)
	g.text = g.answer.text(g.answer.pieces)
	blocks, _ := chain(salt, append(prompt, g.text...))
	g.seq = newSeq(blocks, g.prompt, g.answer.pieces)
	return g, nil
}

// newID makes the part of an id that follows the API's prefix: one that
// follows from the prompt where that is asked for, else the client's request
// id as in vLLM, else a fresh one.
func (s *Server) newID(h http.Header, seed hash) string {
	if s.cfg.DeterministicIDs || h.Get(HeaderDeterministic) != "" {
		return fmt.Sprintf("%016x%016x", uint64(seed), uint64(seed.mix(nil)))
	}
	if id := h.Get("X-Request-Id"); id != "" {
		return id
	}
	n := s.serial.Add(1)
	return fmt.Sprintf("%016x%016x", s.salt*n, n)
}

// whole waits for the complete answer.
func (s *Server) whole(ctx context.Context, g *generation) error {
	s.submit(g)
	defer s.leave(g)
	for have := 0; have < g.answer.pieces; {
		n, err := g.wait(ctx, have)
		if err != nil {
			return err
		}
		have = n
	}
	return nil
}

func (s *Server) submit(g *generation) {
	if g.seq != nil {
		s.engine.submit(g.seq)
	}
}

// leave aborts what has not finished.
func (s *Server) leave(g *generation) {
	if g.seq != nil {
		s.engine.abort(g.seq)
	}
}

// tokens submits the generation and calls each for every token as it comes.
func (s *Server) tokens(ctx context.Context, g *generation, each func(i int, piece string) error) error {
	s.submit(g)
	defer s.leave(g)
	return g.follow(ctx, each)
}

// follow calls each for every token of a submitted generation as it comes.
func (g *generation) follow(ctx context.Context, each func(i int, piece string) error) error {
	for have := 0; have < g.answer.pieces; {
		n, err := g.wait(ctx, have)
		if err != nil {
			return err
		}
		for ; have < n; have++ {
			if err := each(have, g.answer.piece(have)); err != nil {
				return err
			}
		}
	}
	return nil
}

// replyWhole writes a complete answer that is not streamed.
func (c *call) replyWhole(g *generation, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		c.fail(refuse(http.StatusInternalServerError, "%v", err), c.w)
		return
	}
	if g.fault.Die {
		c.w.Header().Set("Content-Type", "application/json")
		c.w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = c.w.Write(b[:len(b)/2])
		_ = http.NewResponseController(c.w).Flush()
		panic(http.ErrAbortHandler)
	}
	replyBytes(c.w, http.StatusOK, b)
}
