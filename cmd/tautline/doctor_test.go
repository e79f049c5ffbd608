package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDoctor: each check has a line; one that fails has advice and the exit code.
func TestDoctor(t *testing.T) {
	code, table, _ := exec(t, "", "doctor")
	again, raw, _ := exec(t, "", "doctor", "-o", "json")
	var checks []struct {
		Name   string `json:"name"`
		OK     bool   `json:"ok"`
		Detail string `json:"detail"`
		Advice string `json:"advice"`
	}
	if err := json.Unmarshal([]byte(raw), &checks); err != nil || len(checks) < 4 {
		t.Fatalf("%v in %s", err, raw)
	}
	want := exitOK
	for _, c := range checks {
		mark := "ok"
		if !c.OK {
			mark, want = "FAIL", exitUnhealthy
			if c.Advice == "" {
				t.Errorf("%s fails, and nothing is advised", c.Name)
			}
		}
		if c.Detail == "" || !regexp.MustCompile(`(?m)^`+mark+` +`+regexp.QuoteMeta(c.Name)+` +\S`).MatchString(table) {
			t.Errorf("%s (ok %v, %q) is not in the table:\n%s", c.Name, c.OK, c.Detail, table)
		}
	}
	if code != want || again != want {
		t.Errorf("exit %d and %d, want %d", code, again, want)
	}
	if os.Geteuid() == 0 && want == exitOK && !strings.Contains(table, "redirect") {
		t.Errorf("all is well, and nothing was spliced to see that:\n%s", table)
	}
}

// TestDoctorAdvises: what the configuration names is looked at.
func TestDoctorAdvises(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tautline.yaml")
	if err := os.WriteFile(file, []byte("splice: {cgroup: /nonexistent}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, table, errs := exec(t, "", "doctor", "--config", file)
	if code != exitUnhealthy || !regexp.MustCompile(`(?m)^FAIL +cgroup +.*/nonexistent.*\n +→ \S`).MatchString(table) {
		t.Errorf("exit %d, %s\n%s", code, errs, table)
	}
}
