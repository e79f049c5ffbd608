package poll

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"unsafe"

	"github.com/tautline/tautline/userspace/load"
)

// ErrNoSeries says that a page has none of the series of its engine.
var ErrNoSeries = errors.New("no known series")

// figures gather one engine's series, or those of one model.
type figures struct {
	value [fieldCount][ranks]float64
	has   [fieldCount][ranks]bool
}

func (f *figures) add(s series, v float64) {
	f.value[s.field][s.rank] += v
	f.has[s.field][s.rank] = true
}

func (f *figures) most(s series, v float64) {
	if !f.has[s.field][s.rank] || v > f.value[s.field][s.rank] {
		f.value[s.field][s.rank] = v
	}
	f.has[s.field][s.rank] = true
}

// get returns the field by its best name.
func (f *figures) get(x field) (float64, bool) {
	for r := range ranks {
		if f.has[x][r] {
			return f.value[x][r], true
		}
	}
	return 0, false
}

// parser reads a metrics page in Prometheus' text format, of engine VLLM or SGLang,
// or "" for whichever it turns out to be, line by line, and keeps nothing of it.
// Queues and counters are summed over the page's engines (data parallel ranks), KV
// use is the largest.
//
// When models are given and some series carry one of them as model_name, only
// those (and series without a model) count; when none does, all count: an
// engine labels its series with its base model, whatever adapters it serves.
//
// Lines that cannot be read are skipped. A page fails with ErrNoSeries only.
type parser struct {
	engine string   // "" until one is known
	models []string // the filter; may be empty

	all, mine figures // of every model, of the filter's
	matched   bool    // some series carried a model of the filter
	start     float64
	hasStart  bool
}

func (p *parser) reset(engine string, models []string) {
	*p = parser{engine: engine, models: models}
}

// The letters that a needed name begins with. Most of a page is histograms of
// other names, which are told apart here at the cost of one look.
var (
	vllmInitial   = [256]bool{'n': true, 'k': true, 'g': true, 'p': true, 'c': true}
	sglangInitial = [256]bool{'n': true, 't': true, 'p': true, 'c': true, 'm': true}
)

var (
	prefixVLLM   = []byte("vllm:")
	prefixSGLang = []byte("sglang:")
	nameStart    = []byte("process_start_time_seconds")
)

// line reads one line, without its end.
func (p *parser) line(b []byte) {
	if len(b) < 8 || b[0] == '#' {
		return
	}
	switch b[0] {
	case 'v':
		if p.engine != SGLang && vllmInitial[b[len(prefixVLLM)]] && bytes.HasPrefix(b, prefixVLLM) {
			name, rest := cutName(b[len(prefixVLLM):])
			if s := vllmSeries(name); s.field != fieldNone {
				p.series(VLLM, s, rest)
			}
		}
	case 's':
		if p.engine != VLLM && sglangInitial[b[len(prefixSGLang)]] && bytes.HasPrefix(b, prefixSGLang) {
			name, rest := cutName(b[len(prefixSGLang):])
			if s := sglangSeries(name); s.field != fieldNone {
				p.series(SGLang, s, rest)
			}
		}
	case 'p':
		if !bytes.HasPrefix(b, nameStart) {
			return
		}
		name, rest := cutName(b)
		if len(name) != len(nameStart) {
			return
		}
		var l labels
		if rest, ok := l.read(rest); ok {
			if v, ok := number(rest); ok && v > 0 {
				p.start, p.hasStart = max(p.start, v), true
			}
		}
	}
}

// cutName splits a line after the metric's name.
func cutName(b []byte) (name, rest []byte) {
	for i, c := range b {
		if c == '{' || c == ' ' || c == '\t' {
			return b[:i], b[i:]
		}
	}
	return b, nil
}

// series takes one line of a known name; rest begins at the labels.
func (p *parser) series(engine string, s series, rest []byte) {
	var l labels
	rest, ok := l.read(rest)
	if !ok {
		return
	}
	v, ok := number(rest)
	if !ok || v < 0 {
		return
	}
	// SGLang with priorities repeats its queue by priority, beside the total
	// whose priority is empty.
	if l.hasPriority && len(l.priority) > 0 {
		return
	}
	p.engine = engine
	p.take(&p.all, s, v, &l)
	if len(p.models) == 0 {
		return
	}
	switch {
	case len(l.model) == 0:
		p.take(&p.mine, s, v, &l)
	case p.wants(l.model):
		p.matched = true
		p.take(&p.mine, s, v, &l)
	}
}

func (p *parser) wants(model []byte) bool {
	for _, m := range p.models {
		if string(model) == m {
			return true
		}
	}
	return false
}

func (p *parser) take(f *figures, s series, v float64, l *labels) {
	switch s.field {
	case fieldKV, fieldPageSize:
		f.most(s, v)
	case fieldCacheInfo:
		size, pages := l.blockSize, l.blocks
		if size > 0 {
			f.most(series{fieldPageSize, 1}, size)
		}
		switch {
		case l.tokens > 0: // newer vLLM; right for hybrid models too
			f.add(series{fieldCapacity, 1}, l.tokens)
		case size > 0 && pages > 0:
			f.add(series{fieldCapacity, 2}, size*pages)
		}
	default:
		f.add(s, v)
	}
}

// maxCount bounds what a page may claim, so that sums stay exact integers.
const maxCount = 1 << 50

func count(v float64) int64 { return int64(min(v, maxCount)) }

// sample is the result after the last line.
func (p *parser) sample() (load.Sample, error) {
	f := &p.all
	if p.matched {
		f = &p.mine
	}
	var s load.Sample
	waiting, hasWaiting := f.get(fieldWaiting)
	running, hasRunning := f.get(fieldRunning)
	s.Waiting, s.Running = int(count(waiting)), int(count(running))
	s.HasQueue = hasWaiting && hasRunning
	s.KVUse, s.HasKV = f.get(fieldKV)
	s.KVUse = min(s.KVUse, 1)
	s.PromptTokens, s.HasPromptToks = f.get(fieldPrompt)
	s.CachedTokens, _ = f.get(fieldCached)
	s.StartTime, s.HasStartTime = p.start, p.hasStart
	size, _ := f.get(fieldPageSize)
	s.BlockTok = int(count(size))
	if v, ok := f.get(fieldCapacity); ok {
		s.CapacityTok = count(v)
	} else if pages, ok := f.get(fieldPages); ok {
		s.CapacityTok = count(size * pages)
	}
	found := hasWaiting || hasRunning || s.HasKV || s.HasPromptToks
	if p.engine == "" || !found {
		return load.Sample{}, ErrNoSeries
	}
	return s, nil
}

// number reads the value after the labels; a time stamp may follow.
func number(b []byte) (float64, bool) {
	from := 0
	for from < len(b) && (b[from] == ' ' || b[from] == '\t') {
		from++
	}
	to := from
	for to < len(b) && b[to] != ' ' && b[to] != '\t' && b[to] != '\r' {
		to++
	}
	if b = b[from:to]; len(b) == 0 || len(b) > 40 {
		return 0, false
	}
	// The string lives no longer than the call, so it may share the bytes.
	v, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}
