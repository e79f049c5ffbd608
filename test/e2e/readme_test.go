package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeSession pastes the session of "Stored responses" into a shell.
func TestReadmeSession(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the session uses %s: %v", tool, err)
		}
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Stored responses\n")
	_, session, _ := strings.Cut(section, "```sh\n")
	session, _, found := strings.Cut(session, "```\n")
	if !found {
		t.Fatal("README has no such session")
	}
	f := newFleet(t)
	a, _ := f.start(t, nil)
	session = regexp.MustCompile(`(?m)^AGENT=\S+`).ReplaceAllString(session, "AGENT=http://"+a.Addr())
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", session).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	id := lines[0]
	want := []string{
		regexp.QuoteMeta(id),
		`\["resp_fra-1\.[^"]+","` + regexp.QuoteMeta(id) + `"\]`, `\[.*` + regexp.QuoteMeta(id) + `"\]`, `\[.*` + regexp.QuoteMeta(id) + `"\]`,
		`event: response\.output_text\.delta`, `data: .*"sequence_number":4.*`,
		`\{"id":"conv_fra-1\.[^"]+"\}`, `2`,
		`.*"deleted":true.*` + regexp.QuoteMeta(id) + `.*`,
		`Response with id '` + regexp.QuoteMeta(id) + `' not found\.`,
		`No stored object with this id was found\.`,
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out)
	}
	for i, line := range lines {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(line) {
			t.Errorf("line %d is %q, want %s", i+1, line, want[i])
		}
	}
}
