// Package pin keeps stored responses and conversations with the backend that
// stored them, by a tag inside the id, so that nothing has to be remembered:
//
//	resp_<site>.<cluster>.<mac>.<id>    conv_<site>.<cluster>.<mac>.<id>
//
// An id gets its tag on the way out (Rewriter) and loses it on the way in
// (Path.Strip, StripBody). Roster.Resolve says where a request that names
// stored ids must go, or with which status it ends here.
//
// The tag is always inserted behind "resp_" or "conv_" and cut out of there
// again: all other bytes, the escapes of the id itself included, stay as they
// came. So stripping what was tagged gives the same bytes back.
//
// # What the HTTP side has to do
//
// A body can be rewritten only if it is read as plain JSON or SSE: drop
// Accept-Encoding from the request to the engine, and let FormOf look at the
// answer. With any form but FormNone the length changes: remove
// Content-Length (and Content-MD5, Digest, ETag) from the answer's head, or
// compute it from the rewritten bytes. Answers to HEAD, 1xx, 204 and 304 have
// no body and keep their head as it is. A request whose path or body was
// stripped gets a new Content-Length too. Answers of another site's gateway
// come with that site's tags and need no Rewriter.
//
// # Several sites
//
// A tag of another site goes, tag and all, to the backend whose site it names:
// the gateway there strips it. Macs are checked here first, so the sites share
// a key, or each lists the others' keys among those that it accepts.
package pin
