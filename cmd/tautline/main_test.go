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

		// A command line that is wrong is 2 wherever that is found out.
		"help":                   {[]string{"help", "frobnicate"}, exitUsage, "unknown command"},
		"help, sub":              {[]string{"help", "config", "frobnicate"}, exitUsage, "unknown command"},
		"help, good":             {[]string{"help", "config", "check"}, exitOK, ""},
		"completion":             {[]string{"completion", "frobnicate"}, exitUsage, "unknown command"},
		"completion, bash":       {[]string{"completion", "bash", "x"}, exitUsage, "unknown command"},
		"agent, policy":          {[]string{"agent", "--policy", "x"}, exitUsage, "routing.policy"},
		"agent, backend":         {[]string{"agent", "--backend", "x"}, exitUsage, "backends[0].url"},
		"agent, listen":          {[]string{"agent", "--listen", "x"}, exitUsage, "listen"},
		"agent, listen nowhere":  {[]string{"agent", "--listen", ""}, exitUsage, "listen"},
		"agent, log level":       {[]string{"agent", "--log-level", "x"}, exitUsage, "log.level"},
		"agent, splice":          {[]string{"agent", "--splice", "x"}, exitUsage, "splice.mode"},
		"demo, splice":           {[]string{"demo", "--splice", "x"}, exitUsage, "--splice"},
		"modelserver, listen":    {[]string{"modelserver", "--listen", "x"}, exitUsage, "--listen"},
		"modelserver, port":      {[]string{"modelserver", "--listen", "127.0.0.1:99999"}, exitUsage, "no such port"},
		"modelserver, engine":    {[]string{"modelserver", "--engine", "x"}, exitUsage, "engine"},
		"status, admin":          {[]string{"status", "--admin", "::x"}, exitUsage, "--admin"},
		"explain, no file":       {[]string{"explain"}, exitUsage, "-f"},
		"keys, path":             {[]string{"keys", "-f", os.DevNull, "--path", "/x"}, exitUsage, "--path"},
		"maps dump, no name":     {[]string{"maps", "dump"}, exitUsage, "argument"},
		"calibrate, none":        {[]string{"calibrate"}, exitUsage, "--url"},
		"calibrate, url":         {[]string{"calibrate", "--url", "x"}, exitUsage, "URL"},
		"calibrate, metrics":     {[]string{"calibrate", "--url", "http://127.0.0.1:1", "--metrics", "x"}, exitUsage, "metrics"},
		"calibrate, samples":     {[]string{"calibrate", "--url", "http://127.0.0.1:1", "--samples", "1"}, exitUsage, "samples"},
		"plan, rate":             {[]string{"plan", "--rate", "0"}, exitUsage, "rate"},
		"bench, path":            {[]string{"bench", "--paths", "x"}, exitUsage, "path"},
		"bench, phase":           {[]string{"bench", "--phases", "x"}, exitUsage, "phase"},
		"bench, pattern":         {[]string{"bench", "--pattern", "x"}, exitUsage, "--pattern"},
		"bench, chart":           {[]string{"bench", "--chart", "x"}, exitUsage, "--chart"},
		"bench net-http":         {[]string{"bench", "net-http"}, exitUsage, "argument"},
		"doctor, argument":       {[]string{"doctor", "x"}, exitUsage, "no arguments"},
		"sim, preset":            {[]string{"sim", "--preset", "x"}, exitUsage, "preset"},
		"sim, policy":            {[]string{"sim", "--policy", "x"}, exitUsage, "policy"},
		"sim, load":              {[]string{"sim", "--load", "-1"}, exitUsage, "load"},
		"sim, load is no number": {[]string{"sim", "--load", "x"}, exitUsage, "load"},
		"sim, seeds":             {[]string{"sim", "--seeds", "-1"}, exitUsage, "seeds"},
		"sim, workers":           {[]string{"sim", "--workers", "-1"}, exitUsage, "workers"},
		"sim, memory":            {[]string{"sim", "--memory", "-1"}, exitUsage, "memory"},
		"sim, sweep":             {[]string{"sim", "--sweep", "x"}, exitUsage, "sweep"},
		"sim, sweep of no tau":   {[]string{"sim", "--policy", "round-robin", "--sweep", "tau=1:2:1"}, exitUsage, "has a tau"},
		"sim, outage":            {[]string{"sim", "--outage", "x"}, exitUsage, "outage"},
		"sim, slots of the toy":  {[]string{"sim", "--decode-slots", "5"}, exitUsage, "toy"},
		"sim, study, policy":     {[]string{"sim", "--study", "--policy", "x"}, exitUsage, "policy"},
		"sim, study, preset":     {[]string{"sim", "--study", "--preset", "x"}, exitUsage, "preset"},
		"sim, study, seeds":      {[]string{"sim", "--study", "--seeds", "-1"}, exitUsage, "seeds"},
		"sim, study, memory":     {[]string{"sim", "--study", "--memory", "-1"}, exitUsage, "memory"},

		// A file that is named and is not there, or is wrong itself, is 1.
		"agent, no file":      {[]string{"agent", "--config", "/nonexistent.yaml"}, exitFailed, "no such file"},
		"doctor, no file":     {[]string{"doctor", "--config", "/nonexistent.yaml"}, exitFailed, "no such file"},
		"keys, no such file":  {[]string{"keys", "-f", "/nonexistent"}, exitFailed, "no such file"},
		"sim, no such trace":  {[]string{"sim", "--trace", "/nonexistent"}, exitFailed, "no such file"},
		"sim, empty trace":    {[]string{"sim", "--trace", os.DevNull}, exitFailed, "no request"},
		"sim, no such source": {[]string{"sim", "--convert-mooncake", "/nonexistent"}, exitFailed, "no such file"},
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
