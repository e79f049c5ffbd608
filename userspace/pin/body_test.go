package pin

import (
	"encoding/json"
	"testing"
)

func TestBody(t *testing.T) {
	for _, c := range []struct {
		name, body       string
		prev, conv, chid string
		want             string // "" = as it came
	}{
		{"none", `{"model":"m","input":"previous_response_id"}`, "", "", "", ""},
		{"plain", `{"previous_response_id":"resp_a.0a1b2c3d..x","input":[]}`, "resp_a.0a1b2c3d..x", "", "",
			`{"previous_response_id":"resp_x","input":[]}`},
		{"untagged", `{"previous_response_id":"resp_x"}`, "resp_x", "", "", ""},
		{"another site's", `{"previous_response_id":"resp_b.0a1b2c3d..x"}`, "resp_b.0a1b2c3d..x", "", "", ""},
		{"conversation", `{"conversation" : "conv_a.0a1b2c3d..x" }`, "", "conv_a.0a1b2c3d..x", "", `{"conversation" : "conv_x" }`},
		{"conversation object", `{"conversation":{"x":{"id":1},"id":"conv_a.0a1b2c3d..x"},"input":1}`, "", "conv_a.0a1b2c3d..x", "",
			`{"conversation":{"x":{"id":1},"id":"conv_x"},"input":1}`},
		{"null", `{"conversation":null,"previous_response_id":null}`, "", "", "", ""},
		{"other types", `{"conversation":["conv_a.0a1b2c3d..x"],"previous_response_id":{"id":"resp_a.0a1b2c3d..x"}}`, "", "", "", ""},
		{"escaped", `{"previous\u005fresponse_id":"\u0072esp_a\u002e0a1b2c3d..x\n\u00e9"}`, "resp_a.0a1b2c3d..x\n\xff", "", "",
			`{"previous\u005fresponse_id":"\u0072esp_x\n\u00e9"}`},
		{"duplicates: the last counts, all are stripped",
			`{"previous_response_id":"resp_a.0a1b2c3d..x","previous_response_id":"resp_a.0a1b2c3d..y"}`, "resp_a.0a1b2c3d..y", "", "",
			`{"previous_response_id":"resp_x","previous_response_id":"resp_y"}`},
		{"duplicates: null last", `{"conversation":{"id":"conv_a.0a1b2c3d..x"},"conversation":null}`, "", "", "",
			`{"conversation":{"id":"conv_x"},"conversation":null}`},
		{"duplicates: an object without id last", `{"conversation":"conv_a.0a1b2c3d..x","conversation":{}}`, "", "", "",
			`{"conversation":"conv_x","conversation":{}}`},
		{"user's words stay", `{"input":"{\"previous_response_id\":\"resp_a.0a1b2c3d..x\"}","metadata":{"previous_response_id":"resp_a.0a1b2c3d..x"}}`,
			"", "", "", ""},
		{"items stay", `{"input":[{"type":"item_reference","id":"resp_a.0a1b2c3d..x"}],"previous_response_id":"resp_y"}`, "resp_y", "", "", ""},
		{"request_id", `{"request_id":"resp_a.0a1b2c3d..x"}`, "", "", "resp_a.0a1b2c3d..x", `{"request_id":"resp_x"}`},
		{"white space", " {\n\t\"previous_response_id\" :\r\n\"resp_a.0a1b2c3d..x\"\n} ", "resp_a.0a1b2c3d..x", "", "",
			" {\n\t\"previous_response_id\" :\r\n\"resp_x\"\n} "},
		{"not an object", `["previous_response_id","resp_a.0a1b2c3d..x"]`, "", "", "", ""},
		{"broken", `{"previous_response_id":"resp_a.0a1b2c3d..x`, "", "", "", ""},
		{"broken before", `{"model" "m","previous_response_id":"resp_a.0a1b2c3d..x"}`, "", "", "", ""},
		{"broken behind", `{"previous_response_id":"resp_a.0a1b2c3d..x","model`, "resp_a.0a1b2c3d..x", "", "", `{"previous_response_id":"resp_x","model`},
		{"empty", ``, "", "", "", ""},
		{"not JSON's numbers", `{"temperature":NaN,"previous_response_id":"resp_a.0a1b2c3d..x"}`, "resp_a.0a1b2c3d..x", "", "",
			`{"temperature":NaN,"previous_response_id":"resp_x"}`},
	} {
		n := ReadBody([]byte(c.body))
		if n.PreviousResponseID != c.prev || n.Conversation != c.conv || n.RequestID != c.chid {
			t.Errorf("%s: %+v", c.name, n)
		}
		if c.want == "" {
			c.want = c.body
		}
		if got := string(StripBody([]byte(c.body), "a", n.Spans...)); got != c.want {
			t.Errorf("%s: stripped %s, want %s", c.name, got, c.want)
		}
	}
}

// Spans come in any order, and maybe twice.
func TestStripBodyTakesSpansInAnyOrder(t *testing.T) {
	body := []byte(`{"conversation":"conv_a.0a1b2c3d..x","previous_response_id":"resp_a.0a1b2c3d..y"}`)
	spans := []Span{{60, 80}, {16, 36}}
	if got, want := string(StripBody(body, "a", append(spans, spans...)...)), `{"conversation":"conv_x","previous_response_id":"resp_y"}`; got != want {
		t.Errorf("stripped %s", got)
	}
}

func TestStripBodyKeepsItsInput(t *testing.T) {
	const in = `{"previous_response_id":"resp_a.0a1b2c3d..x"}`
	body := []byte(in)
	StripBody(body, "a", ReadBody(body).Spans...)
	if string(body) != in {
		t.Errorf("changed to %s", body)
	}
}

// ReadBody against encoding/json, and strip(tag(x)) == x byte for byte.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"previous_response_id":"resp_x","conversation":{"id":"conv_y"},"input":[{"a":"\\\""}]}`,
		`{"conversation":"\u0063onv_y\ud83d\ude00","request_id":"resp_z","conversation":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		n := ReadBody(body)
		for _, s := range n.Spans {
			if s.Start < 0 || s.End > len(body) || s.End-s.Start < 2 || body[s.Start] != '"' || body[s.End-1] != '"' {
				t.Fatalf("%q: span %v", body, s)
			}
		}
		StripBody(body, "a", n.Spans...)
		if !json.Valid(body) || !isASCII(body) {
			return
		}
		if want := refNames(body); want != [3]string{n.PreviousResponseID, n.Conversation, n.RequestID} {
			t.Fatalf("%q: %+v, want %q", body, n, want)
		}
		for _, s := range n.Spans {
			if _, tagged := Parse(decodeID(body[s.Start:s.End])); tagged {
				return
			}
		}
		tagged := rewrite(FormJSON, body)
		back := StripBody(tagged, "zz9", ReadBody(tagged).Spans...)
		if onlyNames(body) && string(back) != string(body) {
			t.Fatalf("%q came back as %q", body, back)
		}
	})
}

// refNames reads the names of a valid body by encoding/json. Escapes above
// ASCII count as opaque.
func refNames(body []byte) (n [3]string) {
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil {
		return n
	}
	str := func(raw json.RawMessage) string {
		var s any
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		if _, ok := s.(string); !ok {
			return ""
		}
		return decodeID(raw)
	}
	n[0], n[1], n[2] = str(top["previous_response_id"]), str(top["conversation"]), str(top["request_id"])
	var conv map[string]json.RawMessage
	if json.Unmarshal(top["conversation"], &conv) == nil && conv != nil {
		n[1] = str(conv["id"])
	}
	return n
}

// onlyNames says whether the rewriter tags nothing in the body but what
// StripBody strips.
func onlyNames(body []byte) bool {
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil {
		return false
	}
	for _, k := range []string{"id", "response_id", "conversation_id", "response", "error"} {
		if _, ok := top[k]; ok {
			return false
		}
	}
	return true
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
