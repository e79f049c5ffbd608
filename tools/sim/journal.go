package sim

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// Journal keeps the results of finished runs in a file, a line of JSON each, so
// that a long sweep that was interrupted goes on where it was. It is for one
// program and one set of settings, which its first line names; which points,
// policies and seeds are asked for may change from one time to the next.
type Journal struct {
	mu   sync.Mutex
	file *os.File
	done map[runKey]Result
	err  error // of the first line that could not be written
}

// runKey names a run among those of the same settings.
type runKey struct {
	X        float64 `json:"x"`
	Scenario string  `json:"scenario"`
	Load     float64 `json:"load"`
	Policy   string  `json:"policy"`
	Seed     uint64  `json:"seed"`
}

// journalHead is the first line of a journal, journalLine every other.
type journalHead struct {
	Program  string `json:"program"`
	Settings string `json:"settings"`
}

type journalLine struct {
	runKey
	Result Result `json:"result"`
}

// OpenJournal opens the journal at path or begins it. program and settings name
// what the results depend on beside the run's own key; a journal that was begun
// with others is refused. A last line that was cut short is dropped. The caller
// closes the journal.
func OpenJournal(path, program, settings string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{file: f, done: map[runKey]Result{}}
	if err := j.read(journalHead{program, settings}); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) read(want journalHead) error {
	data, err := io.ReadAll(bufio.NewReader(j.file))
	if err != nil {
		return err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	for n, line := range bytes.Split(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n")) {
		if len(whole) == 0 {
			break
		}
		if n == 0 {
			var is journalHead
			switch err := json.Unmarshal(line, &is); {
			case err != nil:
				return fmt.Errorf("line 1: %w", err)
			case is.Settings != want.Settings:
				return fmt.Errorf("it was begun with other settings (%s, now %s)", is.Settings, want.Settings)
			case is.Program != want.Program:
				return fmt.Errorf("it was begun by another build of the program; begin a new one")
			}
			continue
		}
		var l journalLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		j.done[l.runKey] = l.Result
	}
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		return err
	}
	if _, err := j.file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if len(whole) == 0 {
		return j.write(want)
	}
	return nil
}

func (j *Journal) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// Close closes the file. It returns the first error that occurred in writing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); j.err == nil {
		j.err = err
	}
	return j.err
}

// journaled is sweep with a journal in a file, or without one when path is "".
func journaled(ctx context.Context, path, settings string, points []Point, seeds, workers int, bar *bar) (rows []Row, err error) {
	if path == "" {
		return sweep(ctx, points, seeds, workers, nil, bar.draw)
	}
	program, err := programSum()
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j, err := OpenJournal(path, program, settings)
	if err != nil {
		return nil, err
	}
	rows, err = sweep(ctx, points, seeds, workers, j, bar.draw)
	if e := j.Close(); err == nil && e != nil {
		err = fmt.Errorf("journal %s: %w", path, e)
	}
	return rows, err
}

// programSum tells this build of the program from every other.
func programSum() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// keyOf names the run of a point under a seed.
func keyOf(p *Point, seed uint64) runKey {
	return runKey{p.X, p.Scenario.Name, p.Scenario.Load, p.Policy.Name, seed}
}

// known returns what an earlier time found. A nil journal knows nothing.
func (j *Journal) known(p *Point, seed uint64) (Result, bool) {
	if j == nil {
		return Result{}, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r, ok := j.done[keyOf(p, seed)]
	return r, ok
}

// add enters a result. A nil journal forgets it.
func (j *Journal) add(p *Point, seed uint64, r Result) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	k := keyOf(p, seed)
	j.done[k] = r
	if err := j.write(journalLine{k, r}); j.err == nil {
		j.err = err
	}
}
