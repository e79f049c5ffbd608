// Package datapath brings the kernel side to life and takes it down again: it
// loads the programs, attaches them to the root cgroup and to the map of servers'
// sockets, and pins the maps.
//
// What is pinned are maps only. Programs and the attachment live and die with the
// agent, so that an agent that is killed leaves nothing that acts.
package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

var (
	// ErrLocked says that another agent uses the pin path.
	ErrLocked = errors.New("pin path is in use by another agent")
	// ErrNotBPFFS says that the pin path is not on a bpf file system.
	ErrNotBPFFS = errors.New("not on a bpf file system")
	// ErrPinDenied says that the pin path, or what is pinned there, is not for this
	// process's user. Capabilities do not stand in for that.
	ErrPinDenied = errors.New("pin path is another user's")
	// ErrRejected says that the kernel refused a program; the text is its reason.
	ErrRejected = errors.New("kernel refused the program")
)

// Options say where the data path attaches and pins.
type Options struct {
	Cgroup  string // a cgroup v2 directory; empty: FindCgroup
	PinPath string // on a bpf file system; empty: no pins
}

// Datapath is the loaded and attached kernel side. Close it.
type Datapath struct {
	objs   bpf.TautlineObjects
	link   link.Link // referenced for as long as it must stay attached
	set    *maps.Set
	lock   *os.File
	made   string // the pins' directory, where this start made it
	cgroup string
	whole  bool
	swept  int
}

// Open loads, pins and attaches. On an error nothing stays loaded; pins that were
// there stay as they were, and others are not left. Pins of a start that died half-way
// are nobody's, and are made anew.
//
// It returns, wrapped: ErrCapabilities, ErrNoCgroup2, ErrNotCgroup2, ErrNotBPFFS, ErrPinDenied,
// ErrLocked, ErrRejected, maps.ErrIncompatible.
func Open(o Options) (*Datapath, error) {
	missing, err := missingCapabilities()
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrCapabilities, capabilityNames(missing))
	}
	d := &Datapath{cgroup: o.Cgroup, whole: true}
	if d.cgroup == "" {
		if d.cgroup, d.whole, err = FindCgroup(); err != nil {
			return nil, err
		}
	} else if err := checkCgroup(d.cgroup); err != nil {
		return nil, err
	}
	if err := d.open(o); err != nil {
		if d.made != "" { // the lock is still held
			err = errors.Join(err, os.RemoveAll(d.made))
		}
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Datapath) open(o Options) error {
	spec, err := bpf.LoadTautline()
	if err != nil {
		return fmt.Errorf("read embedded object: %w", err)
	}
	var opts ebpf.CollectionOptions
	if o.PinPath != "" {
		if err := d.preparePins(o.PinPath); err != nil {
			return err
		}
		opts.Maps.PinPath = maps.Dir(o.PinPath)
		for _, name := range bpf.Pinned() {
			spec.Maps[name].Pinning = ebpf.PinByName
		}
	}
	if err := spec.LoadAndAssign(&d.objs, &opts); err != nil {
		var ve *ebpf.VerifierError
		switch {
		case errors.Is(err, ebpf.ErrMapIncompatible):
			return fmt.Errorf("%w: %v", maps.ErrIncompatible, err)
		case errors.As(err, &ve):
			return fmt.Errorf("%w: %v", ErrRejected, ve)
		}
		return fmt.Errorf("load: %w", err)
	}
	if d.set, err = maps.New(d.objs.TautlineMaps); err != nil {
		return err
	}
	meta, err := maps.Meta()
	if err != nil {
		return err
	}
	if err := d.objs.Meta.Put(uint32(0), meta); err != nil {
		return fmt.Errorf("write meta: %w", err)
	}
	if d.swept, err = d.set.Sweep(); err != nil {
		return err
	}
	if err := d.set.ForgetBackends(); err != nil {
		return err
	}
	for m, p := range map[*ebpf.Map]*ebpf.Program{
		d.objs.ServerSocks: d.objs.OnMessage,
		d.objs.TrialSocks:  d.objs.OnTrial,
	} {
		err := link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: m.FD(), Program: p, Attach: ebpf.AttachSkMsgVerdict,
		})
		if err != nil {
			return fmt.Errorf("attach to sockets: %w", err)
		}
	}
	d.link, err = link.AttachCgroup(link.CgroupOptions{
		Path: d.cgroup, Attach: ebpf.AttachCGroupSockOps, Program: d.objs.OnSocket,
	})
	if err != nil {
		return fmt.Errorf("attach to cgroup %s: %w", d.cgroup, err)
	}
	return nil
}

// preparePins takes the lock, refuses what does not fit and makes the directory.
func (d *Datapath) preparePins(pinPath string) error {
	return denied(d.takePins(pinPath))
}

// denied names an error of file permissions. What bpf(2) itself may not is EPERM.
func denied(err error) error {
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: %v", ErrPinDenied, err)
	}
	return err
}

func (d *Datapath) takePins(pinPath string) error {
	if err := onBPFFS(pinPath); err != nil {
		return err
	}
	if err := os.MkdirAll(pinPath, 0o700); err != nil {
		return fmt.Errorf("make pin path: %w", err)
	}
	lock, err := os.Open(pinPath)
	if err != nil {
		return fmt.Errorf("open pin path: %w", err)
	}
	d.lock = lock
	if err := flock(lock, pinPath); err != nil {
		return err
	}
	if err := d.makeDir(pinPath); err != nil {
		return err
	}
	for _, dir := range maps.Older(pinPath) {
		// The lock says that nobody uses them any more. What cannot be removed costs
		// some memory, and is in nobody's way.
		_ = os.RemoveAll(dir)
	}
	return nil
}

// makeDir makes the directory of the pins, unless they are there and fit. What is
// half made is taken away first: the lock says that nobody is making it.
func (d *Datapath) makeDir(pinPath string) error {
	dir := maps.Dir(pinPath)
	switch err := maps.Verify(pinPath); {
	case err == nil:
		return nil
	case errors.Is(err, maps.ErrHalfMade):
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove what a start that died has left: %w", err)
		}
	case !errors.Is(err, maps.ErrNotPinned):
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	d.made = dir
	return nil
}

// flock takes the lock of the pin path; it goes with the file, and so with the
// process.
func flock(f *os.File, pinPath string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s", ErrLocked, pinPath)
	}
	if err != nil {
		return fmt.Errorf("lock pin path: %w", err)
	}
	return nil
}

// onBPFFS looks at the nearest directory that exists.
func onBPFFS(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at pin path %s: %w", dir, err)
		}
		if st.Type != unix.BPF_FS_MAGIC {
			return fmt.Errorf("%w: %s (mount one: mount -t bpf bpf %s)", ErrNotBPFFS, path, "/sys/fs/bpf")
		}
		return nil
	}
}

// Maps returns the data path's maps, valid until Close.
func (d *Datapath) Maps() *maps.Set { return d.set }

// Cgroup returns where the program is attached, and whether that is the root of
// the hierarchy: servers outside of it are not seen.
func (d *Datapath) Cgroup() (path string, whole bool) { return d.cgroup, d.whole }

// Swept returns how many connections a predecessor had left in the pins.
func (d *Datapath) Swept() int { return d.swept }

// Close detaches and unloads. Splices must have ended: close the connections
// first. The pins stay, with the counters and the last routing table, which the
// next Open clears; no program is left in them.
func (d *Datapath) Close() error {
	var errs []error
	if d.link != nil {
		errs = append(errs, d.link.Close())
	}
	if d.objs.ServerSocks != nil && d.objs.OnMessage != nil {
		err := link.RawDetachProgram(link.RawDetachProgramOptions{
			Target: d.objs.ServerSocks.FD(), Program: d.objs.OnMessage, Attach: ebpf.AttachSkMsgVerdict,
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("detach from the servers' sockets: %w", err))
		}
	}
	if d.set != nil {
		_, err := d.set.Sweep()
		errs = append(errs, err, d.set.Close())
	}
	errs = append(errs, d.objs.Close())
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}
