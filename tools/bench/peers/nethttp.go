package peers

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// ServeNetHTTP is a router of Go's net/http alone, which forwards what it gets and
// flushes at once: what the agent's own share is measured against. It listens until
// ctx ends.
func ServeNetHTTP(ctx context.Context, listen, upstream string) error {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1<<20
	t.DisableCompression = true
	to := &url.URL{Scheme: "http", Host: upstream}
	proxy := &httputil.ReverseProxy{
		Transport:     t,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
	}
	srv := &http.Server{
		Addr:              listen,
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Without it the server takes what is left of the request's body away from
			// the transport when the answer begins, and one stream in a hundred breaks.
			_ = http.NewResponseController(w).EnableFullDuplex()
			proxy.ServeHTTP(w, r)
		}),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

func startNetHTTP(ctx context.Context, e Env) (*Peer, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	argv := append(append([]string{}, e.Self...), "bench", "net-http", addr, e.Upstream)
	proc, err := run(ctx, e, argv, forwards(addr))
	if err != nil {
		return nil, err
	}
	return &Peer{Addr: addr, proc: proc}, nil
}
