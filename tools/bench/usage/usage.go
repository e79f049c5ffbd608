// Package usage reads what processes and the machine have used, from the kernel.
package usage

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process and its descendants have used since they started.
// Descendants that have ended are not in it.
type Usage struct {
	CPU         time.Duration // user and system
	RSS         int64         // bytes resident now; shared pages count in each process
	Switches    int64         // voluntary context switches: how often a thread slept and woke
	Preemptions int64         // involuntary ones
}

// Sub is what was used between an earlier reading o and u; RSS stays u's.
func (u Usage) Sub(o Usage) Usage {
	u.CPU -= o.CPU
	u.Switches -= o.Switches
	u.Preemptions -= o.Preemptions
	return u
}

// Of returns the usage of one process without its descendants.
func Of(pid int) (u Usage, err error) {
	if u.CPU, err = cpu(pid); err != nil {
		return u, err
	}
	if u.RSS, err = rss(pid); err != nil {
		return u, err
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return u, err
	}
	for _, t := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, t.Name()))
		if err != nil {
			continue // the thread ended
		}
		u.Switches += field(text, "\nvoluntary_ctxt_switches:")
		u.Preemptions += field(text, "\nnonvoluntary_ctxt_switches:")
	}
	return u, nil
}

// OfTree returns the usage of a process and all its descendants.
func OfTree(root int) (Usage, error) {
	sum, err := Of(root)
	if err != nil {
		return sum, err
	}
	for _, pid := range Descendants(root) {
		u, err := Of(pid)
		if err != nil {
			continue // it ended
		}
		sum.CPU += u.CPU
		sum.RSS += u.RSS
		sum.Switches += u.Switches
		sum.Preemptions += u.Preemptions
	}
	return sum, nil
}

// Descendants lists the children of a process, their children, and so on.
func Descendants(root int) (found []int) {
	children := map[int][]int{}
	for pid, s := range processes() {
		children[s.parent] = append(children[s.parent], pid)
	}
	for next := children[root]; len(next) > 0; {
		pid := next[0]
		found = append(found, pid)
		next = append(next[1:len(next):len(next)], children[pid]...)
	}
	slices.Sort(found)
	return found
}

// Group lists the living processes of a process group; zombies are not among them.
func Group(pgrp int) (found []int) {
	for pid, s := range processes() {
		if s.group == pgrp && s.state != 'Z' {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

type stat struct {
	state         byte
	parent, group int
}

func processes() map[int]stat {
	all := map[int]stat{}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue // it ended
		}
		// The name in parentheses may hold anything, also parentheses.
		var s stat
		rest := text[bytes.LastIndexByte(text, ')')+1:]
		if _, err := fmt.Sscanf(string(rest), " %c %d %d", &s.state, &s.parent, &s.group); err == nil {
			all[pid] = s
		}
	}
	return all
}

// cpu reads the CPU clock of a process: the sum that utime and stime of
// /proc/PID/stat are made of, in nanoseconds instead of 10 ms ticks, with the
// threads that have ended. See clock_getcpuclockid(3).
func cpu(pid int) (time.Duration, error) {
	const cpuclockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|cpuclockSched, &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

func rss(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("/proc/%d/statm: %w", pid, err)
	}
	return resident * int64(os.Getpagesize()), nil
}

// field finds "\nname:" in a status file and reads its number; 0 when absent.
func field(text []byte, name string) int64 {
	_, rest, ok := strings.Cut(string(text), name)
	if !ok {
		return 0
	}
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return n
}
