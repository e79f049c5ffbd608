// Package decide chooses a backend for a request.
//
// It is pure: no clock, no I/O, no globals. The agent and the simulator run
// this very code. A decision carries its own explanation as data.
package decide
