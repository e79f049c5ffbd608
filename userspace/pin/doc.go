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
// Accept-Encoding and Range from the request to the engine, and let FormOf look
// at the answer; one that came compressed all the same must not be passed on,
// its ids would find no way back. With any form but FormNone the length changes:
// remove Content-Length (and digests, ETag, Accept-Ranges) from the answer's
// head, of HEAD's too, or compute it from the rewritten bytes. Answers with 1xx,
// 204 and 304 have no body and keep their head. A request whose body was
// stripped gets a new Content-Length and loses its digests. A body that came
// with Content-Encoding: gzip is read decoded: sent as it came if it names no
// tagged id, else decoded and stripped; other encodings are not read, and a tag
// inside them reaches the engine, which does not know that id. Answers of
// another site's gateway come with that site's tags and need no Rewriter.
//
// # Several sites
//
// A tag of another site goes, tag and all, to the backend whose site it names:
// the gateway there strips it. Macs are checked here first, so the sites share
// a key, or each lists the others' keys among those that it accepts.
package pin
