package pin

import (
	"net/url"
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	for _, c := range []struct {
		raw  string
		e    Endpoint
		id   string
		want string // stripped of the tags of site a; "" = as it came
	}{
		{"/v1/chat/completions", EndpointOther, "", ""},
		{"/", EndpointOther, "", ""},
		{"", EndpointOther, "", ""},
		{"*", EndpointOther, "", ""},
		{"/v1/", EndpointOther, "", ""},
		{"/v1/responsesx/resp_a.0a1b2c3d..x", EndpointOther, "", ""},
		{"/v2/responses/resp_a.0a1b2c3d..x", EndpointOther, "", ""},
		{"/files//x/../y", EndpointOther, "", ""},
		{"/.well-known/x", EndpointOther, "", ""},
		{"/v1/responses", EndpointResponses, "", ""},
		{"/v1/responses/", EndpointResponses, "", ""},
		{"/v1/responses?x=/v1/responses/y", EndpointResponses, "", ""},
		{"/v1/responses/compact", EndpointCompact, "", ""},
		{"/v1/responses/compact/", EndpointCompact, "", ""},
		{"/v1/responses/input_tokens", EndpointInputTokens, "", ""},
		{"/v1/responses/input%5Ftokens", EndpointInputTokens, "", ""},
		{"/v1/responses/compact/cancel", EndpointResponseCancel, "compact", ""},
		{"/v1/responses/resp_x", EndpointResponse, "resp_x", ""},
		{"/v1/responses/resp_a.0a1b2c3d..x", EndpointResponse, "resp_a.0a1b2c3d..x", "/v1/responses/resp_x"},
		{"/v1/responses/resp_b.0a1b2c3d..x", EndpointResponse, "resp_b.0a1b2c3d..x", ""},
		{"/v1/responses/resp_a.0a1b2c3d..x/?stream=true&starting_after=7", EndpointResponse, "resp_a.0a1b2c3d..x",
			"/v1/responses/resp_x/?stream=true&starting_after=7"},
		{"/v1/responses/resp_a.0a1b2c3d.0123456789abcdef.x.y/cancel", EndpointResponseCancel, "resp_a.0a1b2c3d.0123456789abcdef.x.y",
			"/v1/responses/resp_x.y/cancel"},
		{"/v1/responses/resp_a.0a1b2c3d..x/input_items?after=resp_a.0a1b2c3d..x", EndpointResponseInputItems, "resp_a.0a1b2c3d..x",
			"/v1/responses/resp_x/input_items?after=resp_a.0a1b2c3d..x"},
		{"/v1/responses/resp_a.0a1b2c3d..x/new/thing", EndpointResponseBelow, "resp_a.0a1b2c3d..x", "/v1/responses/resp_x/new/thing"},
		{"/v1/conversations", EndpointConversations, "", ""},
		{"/v1/conversations/compact", EndpointConversation, "compact", ""},
		{"/v1/conversations/conv_a.0a1b2c3d..x", EndpointConversation, "conv_a.0a1b2c3d..x", "/v1/conversations/conv_x"},
		{"/v1/conversations/conv_a.0a1b2c3d..x/items", EndpointItems, "conv_a.0a1b2c3d..x", "/v1/conversations/conv_x/items"},
		{"/v1/conversations/conv_a.0a1b2c3d..x/items/", EndpointItems, "conv_a.0a1b2c3d..x", "/v1/conversations/conv_x/items/"},
		{"/v1/conversations/conv_a.0a1b2c3d..x/items/resp_a.0a1b2c3d..y", EndpointItem, "conv_a.0a1b2c3d..x",
			"/v1/conversations/conv_x/items/resp_a.0a1b2c3d..y"},
		{"/v1/conversations/conv_x/items/y/z", EndpointConversationBelow, "conv_x", ""},
		// escapes: of the id, of its tag, of the path itself; what is left stays as it came
		{"/v1/responses/resp%5Fa%2e0a1b2c3d%2E%2ex%2Dy%41", EndpointResponse, "resp_a.0a1b2c3d..x-yA", "/v1/responses/resp%5Fx%2Dy%41"},
		{"/v1/%72esponses/%72esp_a.0a1b2c3d..x", EndpointResponse, "resp_a.0a1b2c3d..x", "/v1/%72esponses/%72esp_x"},
		{"/v1%2Fresponses%2fresp_a.0a1b2c3d..x%2fcancel", EndpointResponseCancel, "resp_a.0a1b2c3d..x", "/v1%2Fresponses%2fresp_x%2fcancel"},
		{"/v1/responses/resp_%zz%4", EndpointResponse, "resp_%zz%4", ""},
		{"/v1/responses/resp_a.0a1b2c3d..%253F", EndpointResponse, "resp_a.0a1b2c3d..%3F", "/v1/responses/resp_%253F"},
		// a path that somebody behind us might clean
		{"//v1/responses/resp_x", EndpointOdd, "", ""},
		{"/v1//responses/resp_x", EndpointOdd, "", ""},
		{"/v1/responses//resp_x", EndpointOdd, "", ""},
		{"/v1/responses/resp_x//cancel", EndpointOdd, "", ""},
		{"/v1/x/../responses/resp_x", EndpointOdd, "", ""},
		{"/v1/%2e/responses/resp_x", EndpointOdd, "", ""},
		{"/v1/responses/resp_a.0a1b2c3d..x/../resp_y", EndpointOdd, "", ""},
		{"/v1/responses/..", EndpointOdd, "", ""},
	} {
		p := ParsePath(c.raw)
		if p.Endpoint != c.e || p.ID != c.id {
			t.Errorf("ParsePath(%q) = %d %q, want %d %q", c.raw, p.Endpoint, p.ID, c.e, c.id)
		}
		if c.want == "" {
			c.want = c.raw
		}
		if got := p.Strip("a"); got != c.want {
			t.Errorf("Strip(%q) = %q, want %q", c.raw, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { ParsePath("/v1/responses/resp_a.0a1b2c3d..x/cancel?x=y") }); n != 0 {
		t.Errorf("ParsePath allocates %v times", n)
	}
}

func TestEndpoint(t *testing.T) {
	for e, want := range map[Endpoint]struct{ named, body bool }{
		EndpointOther: {}, EndpointConversations: {},
		EndpointResponses: {body: true}, EndpointCompact: {body: true}, EndpointInputTokens: {body: true},
		EndpointResponse: {named: true}, EndpointResponseCancel: {named: true}, EndpointItem: {named: true}, EndpointOdd: {named: true},
	} {
		if got := (Path{Endpoint: e}).Named(); got != want.named {
			t.Errorf("%d: Named = %v", e, got)
		}
		if got := e.NamesBody(); got != want.body {
			t.Errorf("%d: NamesBody = %v", e, got)
		}
	}
}

// Whatever the escapes, a stripped path decodes to the decoded path less its
// tag, and a path without a tag is not changed.
func FuzzPath(f *testing.F) {
	f.Add("/v1/responses/resp%5Fa%2e0a1b2c3d%2E%2ex%2Dy/cancel?a=b")
	f.Add("/v1/conversations/conv_a.0a1b2c3d.0123456789abcdef.x/items/y")
	f.Fuzz(func(t *testing.T, raw string) {
		p := ParsePath(raw)
		got := p.Strip("a")
		tag, tagged := Parse(p.ID)
		if !tagged || tag.Site != "a" {
			if got != raw {
				t.Fatalf("Strip(%q) = %q", raw, got)
			}
			return
		}
		esc, query, _ := strings.Cut(raw, "?")
		gotEsc, gotQuery, _ := strings.Cut(got, "?")
		dec, err1 := url.PathUnescape(esc)
		gotDec, err2 := url.PathUnescape(gotEsc)
		if (err1 == nil) != (err2 == nil) || gotQuery != query {
			t.Fatalf("Strip(%q) = %q: %v, %v", raw, got, err1, err2)
		}
		if want := strings.Replace(dec, "/"+p.ID, "/"+tag.Stripped(), 1); err1 == nil && gotDec != want {
			t.Fatalf("Strip(%q) = %q, want decoded %q", raw, got, want)
		}
	})
}
