package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent/telemetry"
)

// adminClient talks to the admin listener of a running agent.
type adminClient struct{ addr *string }

// addAdmin gives a command its --admin flag.
func addAdmin(c *cobra.Command) adminClient {
	def := os.Getenv("TAUTLINE_ADMIN")
	if def == "" {
		def = "127.0.0.1:9901"
	}
	return adminClient{c.Flags().String("admin", def, "the agent's admin address")}
}

// adminReplyBytes bounds what is read of an answer.
const adminReplyBytes = 64 << 20

// do sends one request and decodes its JSON answer into v.
func (a adminClient) do(ctx context.Context, method, path string, body []byte, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	base := *a.addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return usageError("--admin %s: %v", *a.addr, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return unhealthy("no agent answers at %s: %v", *a.addr, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, adminReplyBytes))
	if err != nil {
		return unhealthy("%s%s: %v", base, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return unhealthy("%s%s answers %s: %s", base, path, resp.Status, reason(raw))
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s%s: %w", base, path, err)
	}
	return nil
}

// reason is what an answer that is no success says in words.
func reason(raw []byte) string {
	var v struct{ Error string }
	if json.Unmarshal(raw, &v) == nil && v.Error != "" {
		return v.Error
	}
	return strings.TrimSpace(fmt.Sprintf("%.200s", raw))
}

func (a adminClient) status(ctx context.Context) (telemetry.Status, error) {
	var s telemetry.Status
	err := a.do(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}
