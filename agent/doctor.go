package agent

import (
	"context"
	"errors"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/userspace/splice"
)

// Check reports what New would refuse of a configuration that is valid in itself:
// files of keys and certificates, ids that clash, limits of the splice. It opens no
// listener and leaves the kernel alone.
func Check(cfg *config.Config) error {
	_, err1 := newHasher(cfg)
	_, err2 := loadTagger(cfg)
	_, err3 := spliceParams(cfg)
	errs := []error{err1, err2, err3, distinct(cfg)}
	if cfg.TLS.CertFile != "" {
		_, err := loadCertificate(cfg.TLS)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Doctor checks, step by step, whether this machine can splice, and says what
// to do where it cannot. It uses maps of its own without pins, so a running
// agent is not disturbed, and leaves nothing behind but a bpf file system where
// there was none.
func Doctor(ctx context.Context, cfg *config.Config) []splice.Check {
	_ = datapath.MountBPFFS(cfg.Splice.PinPath) // as the agent does; the check tells how it went
	var checks []splice.Check
	for _, c := range datapath.Probe(datapath.Options{Cgroup: cfg.Splice.Cgroup, PinPath: cfg.Splice.PinPath}) {
		checks = append(checks, splice.Check(c))
	}
	d, err := datapath.Open(datapath.Options{Cgroup: cfg.Splice.Cgroup})
	if err != nil {
		return checks // the last check says why
	}
	p, err := spliceParams(cfg)
	if err != nil {
		checks = append(checks, splice.Check{Name: "settings", Detail: err.Error(), Advice: "change splice.credit_bytes"})
	} else {
		checks = append(checks, splice.SelfTest(ctx, d.Maps(), p)...)
	}
	if err := d.Close(); err != nil {
		checks = append(checks, splice.Check{Name: "clean-up", Detail: err.Error(), Advice: "please report this"})
	}
	return checks
}
