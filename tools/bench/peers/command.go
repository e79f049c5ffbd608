package peers

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}$`)

// Command parses "name=COMMAND". The shell runs COMMAND after {listen} and
// {upstream} (host:port each), {listen_port} and {upstream_port} and {dir} (a
// directory of its own) are filled in. It must stay in the foreground.
func Command(text string) (Kind, error) {
	name, command, ok := strings.Cut(text, "=")
	if !ok || strings.TrimSpace(command) == "" {
		return Kind{}, fmt.Errorf("a peer is name=COMMAND, got %q", text)
	}
	if !nameRule.MatchString(name) {
		return Kind{}, fmt.Errorf("a peer's name has letters, digits, dot, dash and underscore, got %q", name)
	}
	if slices.ContainsFunc(Kinds(), func(k Kind) bool { return k.Name == name }) {
		return Kind{}, fmt.Errorf("a peer cannot be called %s: that is a path of its own", name)
	}
	if !strings.Contains(command, "{listen}") && !strings.Contains(command, "{listen_port}") {
		return Kind{}, fmt.Errorf("peer %s: the command has no {listen} or {listen_port}, so it cannot be told where to listen", name)
	}
	return Kind{Name: name, About: command, start: func(ctx context.Context, e Env) (*Peer, error) {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		filled := strings.NewReplacer(
			"{listen}", addr, "{listen_port}", port(addr),
			"{upstream}", e.Upstream, "{upstream_port}", port(e.Upstream),
			"{dir}", e.Dir,
		).Replace(command)
		proc, err := run(ctx, e, []string{"/bin/sh", "-c", filled}, forwards(addr))
		if err != nil {
			return nil, err
		}
		return &Peer{Addr: addr, proc: proc}, nil
	}}, nil
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
