package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func journalPoints(t *testing.T) []Point {
	var points []Point
	for _, p := range named(t, "random", "power-of-two") {
		points = append(points, Point{20, preset(t, "seed", 20, 20), p})
	}
	return points
}

func openJournal(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := OpenJournal(path, "program", "settings")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A sweep that was interrupted, even within a line, goes on and gives what an
// uninterrupted one gives; runs that are known are not made again.
func TestJournalGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	points := journalPoints(t)
	want, err := Sweep(context.Background(), points, 3, 1, nil)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	j := openJournal(t, path)
	if _, err = sweep(ctx, points, 3, 1, j, func(finished, _ int) {
		if finished == 2 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n != 3 {
		t.Fatalf("%d lines after two runs", n)
	}
	if err := os.WriteFile(path, data[:len(data)-20], 0o600); err != nil { // the second was cut short
		t.Fatal(err)
	}

	j = openJournal(t, path)
	if len(j.done) != 1 {
		t.Errorf("%d runs are known, want 1", len(j.done))
	}
	got, err := sweep(context.Background(), points, 3, 2, j, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for _, rows := range [][]Row{want, got} {
		for i := range rows {
			for k := range rows[i].Runs {
				rows[i].Runs[k].Jobs = 0 // not kept
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("rows differ from those of an uninterrupted sweep")
	}

	j = openJournal(t, path)
	for i := range points { // nothing is run: these would panic
		points[i].Scenario.Traffic = nil
	}
	again, err := sweep(context.Background(), points, 3, 2, j, nil)
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("from the journal alone: error %v, or rows differ", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestJournalRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	if err := openJournal(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("{\"program\":\"program\",\"settings\":\"settings\"}\nnot JSON\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, program, settings, want string }{
		{path, "other", "settings", "another build"},
		{path, "program", "other", "other settings"},
		{bad, "program", "settings", "line 2"},
		{filepath.Join(dir, "no", "folder"), "program", "settings", "no such file"},
		{dir, "program", "settings", "directory"},
	} {
		j, err := OpenJournal(c.path, c.program, c.settings)
		if err == nil {
			_ = j.Close()
			t.Errorf("%+v: accepted", c)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}

// A journal that cannot be written is an error of the sweep, not a silent loss.
func TestJournalReportsWhatItCouldNotWrite(t *testing.T) {
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sweep(context.Background(), journalPoints(t)[:1], 1, 1, j, nil); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err == nil {
		t.Error("no error")
	}
}

func TestStudyKeepsAJournal(t *testing.T) {
	o := StudyOptions{
		Presets: []string{"b2b"}, Policies: []string{"random"}, Seeds: 1,
		Conditions: Conditions{Duration: 5 * time.Second}, Journal: filepath.Join(t.TempDir(), "journal"),
	}
	var tables [2]strings.Builder
	for i := range tables {
		if _, err := RunStudy(context.Background(), o, &tables[i]); err != nil {
			t.Fatal(err)
		}
	}
	if tables[0].String() != tables[1].String() {
		t.Errorf("first %s\nthen %s", tables[0].String(), tables[1].String())
	}
	o.Memory = 2
	if _, err := RunStudy(context.Background(), o, &tables[0]); err == nil {
		t.Error("a journal of other conditions was taken")
	}
}

// A journal is for one trace and one fleet: another file under the same name, or
// another preset's engines, give other results.
func TestJournalIsForOneTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	settings := func(preset, trace string) string {
		if err := os.WriteFile(path, []byte(trace), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Preset: preset, Trace: path}
		p, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		return p.settings
	}
	one := settings("b2b", `{"time":0,"input":5}`)
	if again := settings("b2b", `{"time":0,"input":5}`); again != one {
		t.Errorf("%q, then %q", one, again)
	}
	if other := settings("b2b", `{"time":0,"input":6}`); other == one {
		t.Error("another trace under the same name has the same settings")
	}
	if other := settings("hetero", `{"time":0,"input":5}`); other == one {
		t.Error("another fleet has the same settings")
	}
}
