package usage

import (
	"fmt"
	"os"
	"time"
)

// Machine is what all CPUs have done since boot.
type Machine struct {
	Busy   time.Duration // not idle, not waiting for I/O, not stolen
	Stolen time.Duration // taken by the host of a virtual machine
	Total  time.Duration // all CPUs together
}

// Sub is what the machine did between an earlier reading o and m.
func (m Machine) Sub(o Machine) Machine {
	return Machine{m.Busy - o.Busy, m.Stolen - o.Stolen, m.Total - o.Total}
}

// OfMachine reads /proc/stat.
func OfMachine() (Machine, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Machine{}, err
	}
	return parseMachine(string(text))
}

// parseMachine reads the first line of /proc/stat; see proc_stat(5). Guest time
// is part of user time.
func parseMachine(text string) (Machine, error) {
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return Machine{}, fmt.Errorf("/proc/stat: %w", err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	busy := user + nice + system + irq + softirq
	return Machine{
		Busy:   time.Duration(busy) * tick,
		Stolen: time.Duration(steal) * tick,
		Total:  time.Duration(busy+idle+iowait+steal) * tick,
	}, nil
}
