package splice

// Reason says what became of a response, or why it was not spliced.
type Reason uint8

// Reasons, in the order in which they are looked for. All but Spliced mean that
// every byte went through the agent.
const (
	Spliced         Reason = iota // the kernel delivered chunks of it
	Off                           // splicing is off, or could not be started
	ClientTLS                     // the listener terminates TLS
	ClientProtocol                // HTTP/2, HTTP/1.0, or a connection that is not plain TCP
	Rewritten                     // the body holds ids that must be rewritten, and no message was free of them
	BackendFraming                // the backend's body is not chunked
	ClientFraming                 // the client's body is not chunked
	Unclaimed                     // the server's socket is remote or could not be taken
	ClientGone                    // the client's socket cannot be a target any more
	ClientBusy                    // another owner of sockmaps holds the client's socket
	SendBuffer                    // the client's send buffer could not be forced
	TableFull                     // a map of the kernel refused the entry
	Untracked                     // the backend's bytes could not be followed
	NeverArmed                    // it ended before everything had been delivered once
	NeverRedirected               // armed, but no message consisted of whole chunks at the right position
	reasonCount
)

var reasonNames = [reasonCount]string{
	Spliced:         "spliced",
	Off:             "off",
	ClientTLS:       "client_tls",
	ClientProtocol:  "client_protocol",
	Rewritten:       "rewritten",
	BackendFraming:  "backend_framing",
	ClientFraming:   "client_framing",
	Unclaimed:       "unclaimed",
	ClientGone:      "client_gone",
	ClientBusy:      "client_busy",
	SendBuffer:      "send_buffer",
	TableFull:       "table_full",
	Untracked:       "untracked",
	NeverArmed:      "never_armed",
	NeverRedirected: "never_redirected",
}

// String returns the reason's name as used in metrics, "unknown" outside the enum.
func (r Reason) String() string {
	if r >= reasonCount {
		return "unknown"
	}
	return reasonNames[r]
}

// Result says how a response ended.
type Result uint8

// Results of a response.
const (
	Ended   Result = iota // read and delivered to its end
	Damaged               // the client's stream does not add up: both sides were cut
	Aborted               // any other way
	resultCount
)

var resultNames = [resultCount]string{Ended: "ended", Damaged: "damaged", Aborted: "aborted"}

// String returns the result's name as used in metrics, "unknown" outside the enum.
func (r Result) String() string {
	if r >= resultCount {
		return "unknown"
	}
	return resultNames[r]
}
