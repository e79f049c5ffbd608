package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelSourcesSayTheirLicence, and no other file claims it: LICENSE.bpf
// promises that.
func TestKernelSourcesSayTheirLicence(t *testing.T) {
	const line = "SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)"
	seen := 0
	err := filepath.WalkDir("../bpf", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		head := strings.Join(strings.SplitN(string(text), "\n", 4)[:min(3, strings.Count(string(text), "\n"))], "\n")
		switch filepath.Ext(path) {
		case ".c", ".h":
			seen++
			if !strings.Contains(head, line) {
				t.Errorf("%s does not say its licence in its first lines", path)
			}
		case ".go":
			if strings.Contains(head, "SPDX") {
				t.Errorf("%s claims the licence of the C files", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no C file was found")
	}
	for _, name := range []string{"LICENSE.bpf", "LICENSES/GPL-2.0-only.txt", "LICENSES/BSD-2-Clause.txt"} {
		if _, err := os.Stat("../" + name); err != nil {
			t.Error(err)
		}
	}
}
