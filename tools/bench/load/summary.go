package load

import "time"

// Summary adds up results.
type Summary struct {
	Requests, Failed           int
	PromptTokens, CachedTokens int64
	Chunks                     int64
	Bytes                      int64
	TTFT                       []time.Duration
	FirstError                 error
}

// Add takes one more result in.
func (s *Summary) Add(r Result) {
	s.Requests++
	if !r.OK() {
		s.Failed++
		if s.FirstError == nil {
			s.FirstError = r.Err
		}
		return
	}
	s.PromptTokens += int64(r.PromptTokens)
	s.CachedTokens += int64(r.CachedTokens)
	s.Chunks += int64(r.Chunks)
	s.Bytes += r.Bytes
	s.TTFT = append(s.TTFT, r.TTFT)
}

// HitRate is the share of prompt tokens that the engines had cached.
func (s *Summary) HitRate() float64 {
	if s.PromptTokens == 0 {
		return 0
	}
	return float64(s.CachedTokens) / float64(s.PromptTokens)
}
