// Package peers starts and stops what a benchmark compares: no router at all,
// tautline's agent, nginx, HAProxy, or any command of the user's. Each listens
// on a loopback port and forwards to one upstream.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tautline/tautline/tools/bench/usage"
)

// ErrAbsent says that the program is not installed.
var ErrAbsent = errors.New("not installed")

// Env is what every peer needs to start.
type Env struct {
	Upstream string   // host:port of the server behind it
	Dir      string   // for its files; the caller removes it
	Conns    int      // client connections it must be able to hold at once
	Self     []string // how to call tautline
}

// Peer is one running way from client to server.
type Peer struct {
	Name string
	Addr string // host:port for clients

	proc  *process     // nil: nothing runs
	admin string       // host:port of an agent's admin listener, else ""
	clean func() error // after the processes have ended; may be nil
}

// Kind knows how to start one sort of peer.
type Kind struct {
	Name  string
	About string // one line
	start func(context.Context, Env) (*Peer, error)
}

// Kinds lists what can be started by name, in the order it is reported in.
func Kinds() []Kind {
	return []Kind{
		{"direct", "no router: the client talks to the server", startDirect},
		{"spliced", "tautline agent, splice.mode required", agentStarter("required")},
		{"unspliced", "tautline agent, splice.mode off", agentStarter("off")},
		{"net-http", "a reverse proxy of Go's net/http alone", startNetHTTP},
		{"nginx", "nginx, unbuffered, a worker per CPU", nginxStarter("auto")},
		{"nginx1", "nginx with one worker", nginxStarter("1")},
		{"haproxy", "HAProxy, a thread per CPU", haproxyStarter(0)},
		{"haproxy1", "HAProxy with one thread", haproxyStarter(1)},
	}
}

// startTimeout is how long a peer may take to forward its first request. Routers
// written in Python take their time.
const startTimeout = 30 * time.Second

// Start starts a peer and returns when requests go through it. The error wraps
// ErrAbsent when its program is not installed. The caller stops the peer.
func (k Kind) Start(ctx context.Context, e Env) (*Peer, error) {
	e.Dir = filepath.Join(e.Dir, k.Name)
	if err := os.Mkdir(e.Dir, 0o755); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		p, err := k.start(ctx, e)
		if err == nil {
			p.Name = k.Name
			return p, nil
		}
		// A port that was free when it was chosen may be the near end of somebody's
		// connection by now.
		if try == 3 || !strings.Contains(strings.ToLower(err.Error()), "address already in use") {
			return nil, fmt.Errorf("%s: %w", k.Name, err)
		}
	}
}

func startDirect(_ context.Context, e Env) (*Peer, error) { return &Peer{Addr: e.Upstream}, nil }

// Usage is what the router's processes have used; false for a peer without any.
func (p *Peer) Usage() (usage.Usage, bool, error) {
	if p.proc == nil {
		return usage.Usage{}, false, nil
	}
	select {
	case <-p.proc.done:
		return usage.Usage{}, true, fmt.Errorf("%s ended (%s): %s", p.Name, p.proc.cmd.ProcessState, p.proc.said())
	default:
	}
	u, err := usage.OfTree(p.proc.pid())
	return u, true, err
}

// Stop ends the peer with all its processes and removes what it left.
func (p *Peer) Stop() error {
	var errs []error
	if p.proc != nil {
		errs = append(errs, p.proc.stop())
	}
	if p.clean != nil {
		errs = append(errs, p.clean())
	}
	return errors.Join(errs...)
}

// run launches argv and waits until path answers 200 at each address. A command
// that fails to start leaves nothing running.
func run(ctx context.Context, e Env, argv []string, ready func(context.Context) error) (*process, error) {
	proc, err := launch(argv, e.Dir, filepath.Join(e.Dir, "log"))
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := proc.await(wait, ready); err != nil {
		return nil, errors.Join(err, proc.stop())
	}
	return proc, nil
}

// answers asks for an URL and wants a 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, resp.StatusCode)
	}
	return nil
}

// forwards waits for the model list of the server behind addr.
func forwards(addr string) func(context.Context) error {
	return func(ctx context.Context) error { return answers(ctx, "http://"+addr+"/v1/models") }
}

// freeAddr finds a loopback address nobody listens on. Somebody may take it
// before it is used: then the peer fails to start, and says so.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// writeFile writes a peer's configuration into its directory.
func writeFile(e Env, name, text string) (string, error) {
	path := filepath.Join(e.Dir, name)
	return path, os.WriteFile(path, []byte(strings.TrimLeft(text, "\n")), 0o644)
}
