package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
)

// lookup finds a program also where daemons are kept, which a user's PATH may lack.
func lookup(name string) (string, error) {
	for _, n := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(n); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s", ErrAbsent, name)
}

// nginxConfig is what the guides for token streams say: no buffering of
// answers, HTTP/1.1 and keep-alive to the server. Request bodies stay in memory.
const nginxConfig = `
daemon off;
worker_processes %[1]s;
%[2]s
pid %[3]s/nginx.pid;
error_log %[3]s/error.log warn;
worker_rlimit_nofile %[4]d;
events { worker_connections %[4]d; }
http {
  access_log off;
  client_max_body_size 0;
  client_body_buffer_size 1m;
  client_body_temp_path %[3]s/body;
  proxy_temp_path %[3]s/proxy;
  fastcgi_temp_path %[3]s/fastcgi;
  uwsgi_temp_path %[3]s/uwsgi;
  scgi_temp_path %[3]s/scgi;
  keepalive_requests 1000000;
  upstream server { server %[5]s; keepalive %[6]d; keepalive_requests 1000000; }
  server {
    listen %[7]s;
    location / {
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 1h;
    }
  }
}
`

func nginxStarter(workers string) func(context.Context, Env) (*Peer, error) {
	return func(ctx context.Context, e Env) (*Peer, error) {
		path, err := lookup("nginx")
		if err != nil {
			return nil, err
		}
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		// As root the workers would be "nobody", who may not enter a temporary directory.
		as := ""
		if os.Geteuid() == 0 {
			u, err := user.Current()
			if err != nil {
				return nil, err
			}
			as = "user " + u.Username + ";"
		}
		descriptors := 2*e.Conns + 256
		conf, err := writeFile(e, "nginx.conf", fmt.Sprintf(nginxConfig, workers, as, e.Dir, descriptors, e.Upstream, e.Conns, addr))
		if err != nil {
			return nil, err
		}
		proc, err := run(ctx, e, []string{path, "-p", e.Dir, "-e", e.Dir + "/error.log", "-c", conf}, forwards(addr))
		if err != nil {
			return nil, err
		}
		return &Peer{Addr: addr, proc: proc}, nil
	}
}
