package traffic

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestReadTrace(t *testing.T) {
	tr, err := ReadTrace(strings.NewReader(`{"time":2,"chain":[1,2],"lengths":[100,50],"input":180,"output":7,"session":"s","model":"m"}

{"time":1,"chain":[1],"input":700,"output":0}
`))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Len() != 2 || tr.Length() != 2*time.Second {
		t.Fatalf("%d records of %v", tr.Len(), tr.Length())
	}
	s := tr.Replay(2)
	a, b := &Job{}, &Job{}
	a.Reset()
	b.Reset()
	if at := s.Next(); at != 500*time.Millisecond {
		t.Errorf("first at %v", at)
	}
	s.Pop(a)
	if at := s.Next(); at != time.Second {
		t.Errorf("second at %v", at)
	}
	s.Pop(b)
	if s.Next() != Never {
		t.Error("a third request")
	}
	if a.Prompt != 700 || len(a.Segs) != 2 || a.Segs[0].Tokens != Piece || a.Output != 1 {
		t.Errorf("first %+v", a)
	}
	if b.Prompt != 180 || len(b.Segs) != 3 || b.Segs[0].ID != a.Segs[0].ID || b.Segs[2].Tokens != 30 || b.Model != "m" {
		t.Errorf("second %+v", b)
	}
}

// Files from Windows: a byte order mark, CR LF, empty lines with blanks.
func TestReadTraceFromWindows(t *testing.T) {
	tr, err := ReadTrace(strings.NewReader("\ufeff{\"time\":0,\"input\":5}\r\n\r\n \t\r\n{\"time\":1,\"input\":5}\r\n"))
	if err != nil || tr.Len() != 2 {
		t.Errorf("%v, %v", tr, err)
	}
}

func TestReadTraceNamesTheLine(t *testing.T) {
	for _, bad := range []string{
		"", "\n\n", "{", `{"time":-1,"input":1}`, `{"time":1,"input":0}`, `{"time":1,"input":5,"output":-1}`,
		`{"time":1,"input":5,"chain":[1],"lengths":[1,2]}`, `{"time":1,"input":5,"chain":[1],"lengths":[0]}`, `{"time":1e300,"input":5}`, `[]`,
	} {
		_, err := ReadTrace(strings.NewReader(`{"time":0,"input":5}` + "\n" + bad))
		if strings.TrimSpace(bad) == "" {
			if _, err := ReadTrace(strings.NewReader(bad)); err == nil {
				t.Error("an empty trace is accepted")
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	if _, err := ReadTrace(strings.NewReader(`{"time":0,"input":5}` + "\n" + strings.Repeat(" ", maxLine+1))); err == nil || !strings.Contains(err.Error(), "line 2: longer than") {
		t.Errorf("a line without end: error %v", err)
	}
}

func TestConvertMooncake(t *testing.T) {
	var out bytes.Buffer
	n, err := ConvertMooncake(strings.NewReader(`{"timestamp": 1500, "input_length": 1100, "output_length": 3, "hash_ids": [46, 47, 99]}`), &out)
	if err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	tr, err := ReadTrace(&out)
	if err != nil {
		t.Fatal(err)
	}
	j := &Job{}
	j.Reset()
	tr.Replay(1).Pop(j)
	if j.Prompt != 1100 || len(j.Segs) != 3 || j.Segs[2].Tokens != 1100-2*512 || j.Output != 3 || tr.Length() != 1500*time.Millisecond {
		t.Errorf("%+v", j)
	}
	for _, bad := range []string{"x", `{"input_length":5}`, `{"timestamp":1,"input_length":0}`} {
		if _, err := ConvertMooncake(strings.NewReader(bad), &out); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(`{"time":2,"chain":[1,2],"lengths":[100,50],"input":180,"output":7}`)
	f.Fuzz(func(t *testing.T, s string) {
		tr, err := ReadTrace(strings.NewReader(s))
		if err != nil {
			return
		}
		src := tr.Replay(1)
		j := &Job{}
		last := Instant(0)
		for src.Next() != Never {
			if src.Next() < last {
				t.Fatal("out of order")
			}
			last = src.Next()
			j.Reset()
			src.Pop(j)
			sum := 0
			for _, g := range j.Segs {
				sum += g.Tokens
			}
			if sum != j.Prompt || j.Prompt < 1 || j.Output < 1 {
				t.Fatalf("prompt %d of %d tokens in segments, output %d", j.Prompt, sum, j.Output)
			}
			j.SetKeys(RealBlock)
		}
	})
}
