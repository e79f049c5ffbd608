package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// exec runs one command line in this process.
func exec(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		walk(sub, f)
	}
}

func TestConfigCheckReadsTheFilesThatAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tautline.yaml")
	if err := os.WriteFile(file, []byte("prefix_affinity: {tag_key_path: /nonexistent}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := exec(t, "", "config", "check", file); code != exitFailed || !strings.Contains(errs, "tag_key_path") {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
}

func TestEveryCommandHelpsWithAnExample(t *testing.T) {
	walk(newRoot(), func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		code, out, _ := exec(t, "", args...)
		if code != exitOK || !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help: exit %d, want 0 and an example; printed:\n%s", c.CommandPath(), code, out)
		}
	})
}

func TestExitCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		want string // in stderr
	}{
		"version":           {[]string{"version"}, exitOK, ""},
		"unknown command":   {[]string{"frobnicate"}, exitUsage, "unknown command"},
		"unknown flag":      {[]string{"version", "--frob"}, exitUsage, "unknown flag"},
		"too many":          {[]string{"version", "x"}, exitUsage, "no arguments"},
		"bad output":        {[]string{"version", "-o", "xml"}, exitUsage, "table or json"},
		"no agent":          {[]string{"status", "--admin", "127.0.0.1:1"}, exitUnhealthy, "no agent answers"},
		"config, no file":   {[]string{"config", "check"}, exitUsage, "argument"},
		"no time":           {[]string{"demo", "--duration", "-3s"}, exitUsage, "positive"},
		"config, not there": {[]string{"config", "check", "/nonexistent.yaml"}, exitFailed, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := exec(t, "", tc.args...)
			if code != tc.code || !strings.Contains(errs, tc.want) {
				t.Errorf("exit %d, stderr %q; want %d and %q", code, errs, tc.code, tc.want)
			}
		})
	}
}

// TestRefusalsInWords: what an admin listener says is shown, not its JSON.
func TestRefusalsInWords(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "{\n  \"error\": \"too long\"\n}\n")
	}))
	defer s.Close()
	code, _, errs := exec(t, "{}", "explain", "--admin", s.URL, "-f", "-")
	if code != exitUnhealthy || !strings.HasSuffix(errs, "answers 413 Request Entity Too Large: too long\n") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestKeysHelpNamesItsDefault(t *testing.T) {
	if _, out, _ := exec(t, "", "keys", "--help"); !strings.Contains(out, "(default json)") {
		t.Error(out)
	}
}

func TestVersionJSON(t *testing.T) {
	_, out, _ := exec(t, "", "version", "-o", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(out), &v); err != nil || v["version"] == "" {
		t.Errorf("got %q, %v", out, err)
	}
}
