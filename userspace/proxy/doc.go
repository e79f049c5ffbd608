// Package proxy is the HTTP/1.1 data path: it reads a request, has a backend
// chosen for it, sends it, and relays the answer byte for byte.
//
// net/http stays in charge of HTTP on both sides, package upstream of the connections
// to the backends. The package owns what lies
// between: the body in memory, the choice and its accounts, one retry, the copy
// loop, and the errors in the shape of the API that was asked. It owns two
// seams: Splicer, through which the kernel may take over a token stream, and
// Pinner, through which stored ids bind a request to a backend.
//
// No request or response body is ever altered, unless a Pinner says so.
package proxy
