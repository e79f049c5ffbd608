package sim

import "errors"

// OptionError is an error of Lab and RunStudy that the options are to blame for:
// nothing has run, and nothing would. Files that they name are another matter.
type OptionError struct{ error }

// Unwrap returns what is wrong.
func (e OptionError) Unwrap() error { return e.error }

// traceError is that of a trace that could not be read.
type traceError struct{ error }

func (e traceError) Unwrap() error { return e.error }

// ofOptions marks an error that came of making options ready to run.
func ofOptions(err error) error {
	if t := (traceError{}); errors.As(err, &t) {
		return err
	}
	return OptionError{err}
}
