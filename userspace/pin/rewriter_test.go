package pin

const testStamp = "zz9.0a1b2c3d.0123456789abcdef."

// rewrite passes the body through in one piece.
func rewrite(form Form, body []byte) []byte {
	r := NewRewriter(testStamp, form)
	return r.Finish(r.Append(nil, body))
}
