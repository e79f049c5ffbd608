package modelserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func names(list []event) []string {
	var n []string
	for _, e := range list {
		if len(n) == 0 || n[len(n)-1] != e.name {
			n = append(n, e.name)
		}
	}
	return n
}

func TestMessagesEvents(t *testing.T) {
	c := quick()
	s := start(t, c)
	body := `{"model":"stand-in","max_tokens":100,"stream":true,"system":"be brief","messages":[{"role":"user","content":"hi"}]}`
	_, b := do(t, "POST", s.URL()+"/v1/messages", body)
	list := events(t, b)
	want := []string{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
	if got := names(list); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	var all strings.Builder
	for _, e := range list {
		if get(t, e.data, "type") != e.name {
			t.Errorf("event %s has type %v", e.name, get(t, e.data, "type"))
		}
		if e.name == "content_block_delta" {
			all.WriteString(get(t, e.data, "delta.text").(string))
		}
	}
	_, whole := do(t, "POST", s.URL()+"/v1/messages", strings.Replace(body, "true", "false", 1))
	if got := get(t, whole, "content.0.text"); got != all.String() {
		t.Errorf("whole %q, streamed %q", got, all.String())
	}
	if got := get(t, whole, "stop_reason"); got != "end_turn" {
		t.Errorf("stop_reason %v, want end_turn", got)
	}
	if status, b := do(t, "POST", s.URL()+"/v1/messages", strings.Replace(body, `"max_tokens":100,`, "", 1)); status != 400 || get(t, b, "type") != "error" {
		t.Errorf("without max_tokens: %d %s", status, b)
	}
	if status, b := do(t, "POST", s.URL()+"/v1/messages/count_tokens", body); status != 200 || get(t, b, "input_tokens").(float64) < 2 {
		t.Errorf("count_tokens: %d %s", status, b)
	}
}

func TestToolCalls(t *testing.T) {
	s := start(t, quick())
	schema := `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}`
	for name, tc := range map[string]struct{ path, body, called, args string }{
		"chat": {
			"/v1/chat/completions",
			`{"tool_choice":"required","tools":[{"type":"function","function":{"name":"weather","parameters":` + schema + `}}],"messages":[{"role":"user","content":"x"}]}`,
			"choices.0.message.tool_calls.0.function.name", "choices.0.message.tool_calls.0.function.arguments",
		},
		"messages": {
			"/v1/messages",
			`{"max_tokens":100,"tool_choice":{"type":"tool","name":"weather"},"tools":[{"name":"weather","input_schema":` + schema + `}],"messages":[{"role":"user","content":"x"}]}`,
			"content.0.name", "",
		},
		"responses": {
			"/v1/responses",
			`{"tools":[{"type":"function","name":"weather","parameters":` + schema + `}],"input":"please use the tool weather"}`,
			"output.0.name", "output.0.arguments",
		},
	} {
		_, b := do(t, "POST", s.URL()+tc.path, tc.body)
		if got := get(t, b, tc.called); got != "weather" {
			t.Errorf("%s: called %v, want weather: %s", name, got, b)
		}
		if tc.args != "" {
			if args := get(t, b, tc.args).(string); get(t, args, "city") == "" || get(t, args, "days") == nil {
				t.Errorf("%s: arguments %s", name, args)
			}
		}
		if status, b := do(t, "POST", s.URL()+tc.path, `{"stream":true,`+tc.body[1:]); status != 200 || !strings.Contains(b, "weather") {
			t.Errorf("%s streamed: %d %s", name, status, b)
		}
	}
}

func TestResponsesEvents(t *testing.T) {
	s := start(t, quick())
	_, b := do(t, "POST", s.URL()+"/v1/responses", `{"input":"hello","stream":true}`)
	list := events(t, b)
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done",
		"response.output_item.done", "response.completed",
	}
	if got := names(list); !slices.Equal(got, want) {
		t.Errorf("events %v\nwant %v", got, want)
	}
	for i, e := range list {
		if got := get(t, e.data, "sequence_number"); got != float64(i) {
			t.Errorf("event %d has sequence number %v", i, got)
		}
		if get(t, e.data, "type") != e.name {
			t.Errorf("event %s has type %v", e.name, get(t, e.data, "type"))
		}
	}
	id := get(t, list[0].data, "response.id").(string)
	_, again := do(t, "GET", s.URL()+"/v1/responses/"+id+"?stream=true&starting_after=4", "")
	if got := events(t, again); !slices.Equal(got, list[5:]) {
		t.Errorf("replay after 4: %d events, want %d:\n%s", len(got), len(list)-5, again)
	}
	_, whole := do(t, "GET", s.URL()+"/v1/responses/"+id, "")
	if got, want := get(t, whole, "output.0.content.0.text"), get(t, list[len(list)-1].data, "response.output.0.content.0.text"); got != want {
		t.Errorf("stored %q, streamed %q", got, want)
	}
}

// TestCreatedComesBeforePrefill: with a prefill that never ends, the two first
// events still arrive.
func TestCreatedComesBeforePrefill(t *testing.T) {
	c := quick()
	c.PrefillRate = 1e-6
	s := start(t, c)
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1/responses", strings.NewReader(`{"input":"hello","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got []byte
	buf := make([]byte, 4096)
	for !strings.Contains(string(got), "event: response.in_progress\n") {
		n, err := resp.Body.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
	}
	if n := s.engine.snapshot(); n.AnswerTokens != 0 {
		t.Errorf("%v tokens answered, want none yet", n.AnswerTokens)
	}
}

func TestStoredResponses(t *testing.T) {
	c := quick()
	c.StoredMax = 3
	s := start(t, c)
	url := s.URL() + "/v1/responses"
	create := func(body string) string {
		status, b := do(t, "POST", url, body)
		if status != 200 {
			t.Fatalf("%s: %d %s", body, status, b)
		}
		return get(t, b, "id").(string)
	}
	first := create(`{"input":"` + strings.Repeat("long ", 200) + `"}`)
	_, second := do(t, "POST", url, `{"input":"and then","previous_response_id":"`+first+`"}`)
	if got := get(t, second, "previous_response_id"); got != first {
		t.Errorf("previous_response_id %v, want %s", got, first)
	}
	if got := get(t, second, "usage.input_tokens_details.cached_tokens").(float64); got < 200 {
		t.Errorf("%v tokens cached after the first turn, want most of its 250", got)
	}
	status, b := do(t, "POST", url, `{"input":"x","previous_response_id":"resp_gone"}`)
	if status != 404 || get(t, b, "error.message") != "Response with id 'resp_gone' not found." {
		t.Errorf("unknown previous id: %d %s", status, b)
	}
	if status, b = do(t, "GET", url+"/"+first+"/input_items", ""); status != 200 || get(t, b, "data.0.role") != "user" {
		t.Errorf("input items: %d %s", status, b)
	}
	if status, _ = do(t, "POST", url+"/"+first+"/cancel", ""); status != 400 {
		t.Errorf("cancel of one that was not in the background: %d, want 400", status)
	}
	if status, b = do(t, "DELETE", url+"/"+first, ""); status != 200 || get(t, b, "deleted") != true {
		t.Errorf("delete: %d %s", status, b)
	}
	for _, path := range []string{"/" + first, "/" + first + "/input_items", "/resp_none?stream=true"} {
		if status, _ = do(t, "GET", url+path, ""); status != 404 {
			t.Errorf("GET %s: %d, want 404", path, status)
		}
	}
	hidden := create(`{"input":"x","store":false}`)
	if status, _ = do(t, "GET", url+"/"+hidden, ""); status != 404 {
		t.Errorf("one that was not to be stored: %d, want 404", status)
	}
	if id := create(`{"input":"x","request_id":"resp_mine"}`); id != "resp_mine" {
		t.Errorf("id %s, want the client's", id)
	}
	for range 3 {
		create(`{"input":"x"}`)
	}
	if status, _ = do(t, "GET", url+"/resp_mine", ""); status != 404 {
		t.Errorf("the oldest of more than the store keeps: %d, want 404", status)
	}
	if status, b = do(t, "POST", url+"/input_tokens", `{"input":"hello"}`); status != 200 || get(t, b, "input_tokens").(float64) < 1 {
		t.Errorf("input_tokens: %d %s", status, b)
	}
}

func TestBackgroundResponse(t *testing.T) {
	c := quick()
	c.PrefillRate = 1e-6
	s := start(t, c)
	url := s.URL() + "/v1/responses"
	status, b := do(t, "POST", url, `{"input":"x","background":true}`)
	if status != 200 || get(t, b, "status") != "queued" {
		t.Fatalf("create: %d %s", status, b)
	}
	id := get(t, b, "id").(string)
	if _, b = do(t, "POST", url+"/"+id+"/cancel", ""); get(t, b, "status") != "cancelled" {
		t.Errorf("cancel: %s", b)
	}
	until(t, func() bool { return s.engine.snapshot().Aborted == 1 })
	if _, b = do(t, "GET", url+"/"+id, ""); get(t, b, "status") != "cancelled" {
		t.Errorf("after the cancel: %s", b)
	}
	quickly := start(t, quick())
	url = quickly.URL() + "/v1/responses"
	_, b = do(t, "POST", url, `{"input":"x","background":true}`)
	id = get(t, b, "id").(string)
	_, b = do(t, "GET", url+"/"+id+"?stream=true", "")
	if got := names(events(t, b)); got[len(got)-1] != "response.completed" {
		t.Errorf("events %v, want response.completed last", got)
	}
	if _, b = do(t, "GET", url+"/"+id, ""); get(t, b, "status") != "completed" {
		t.Errorf("after the end: %s", b)
	}
}

func TestConversations(t *testing.T) {
	s := start(t, quick())
	url := s.URL() + "/v1/conversations"
	_, b := do(t, "POST", url, `{"metadata":{"a":"b"},"items":[{"type":"message","role":"user","content":"hello"}]}`)
	id := get(t, b, "id").(string)
	if !strings.HasPrefix(id, "conv_") || get(t, b, "object") != "conversation" {
		t.Fatalf("create: %s", b)
	}
	for _, form := range []string{`"` + id + `"`, `{"id":"` + id + `"}`} {
		_, b = do(t, "POST", s.URL()+"/v1/responses", `{"input":"more","conversation":`+form+`}`)
		if get(t, b, "conversation.id") != id {
			t.Errorf("response in the conversation: %s", b)
		}
	}
	_, b = do(t, "GET", url+"/"+id+"/items?order=asc&limit=2", "")
	if len(get(t, b, "data").([]any)) != 2 || get(t, b, "has_more") != true {
		t.Errorf("first two of five items: %s", b)
	}
	_, b = do(t, "GET", url+"/"+id+"/items?order=asc&after="+get(t, b, "last_id").(string), "")
	if len(get(t, b, "data").([]any)) != 3 || get(t, b, "has_more") != false {
		t.Errorf("other three of five items: %s", b)
	}
	_, b = do(t, "POST", url+"/"+id+"/items", `{"items":[{"role":"user","content":"one"}]}`)
	one := get(t, b, "data.0.id").(string)
	if status, b := do(t, "GET", url+"/"+id+"/items/"+one, ""); status != 200 || get(t, b, "content") != "one" {
		t.Errorf("item: %d %s", status, b)
	}
	if status, _ := do(t, "DELETE", url+"/"+id+"/items/"+one, ""); status != 200 {
		t.Errorf("delete of an item: %d", status)
	}
	if status, _ := do(t, "GET", url+"/"+id+"/items/"+one, ""); status != 404 {
		t.Errorf("deleted item: %d, want 404", status)
	}
	if _, b = do(t, "POST", url+"/"+id, `{"metadata":{"c":"d"}}`); get(t, b, "metadata.c") != "d" {
		t.Errorf("update: %s", b)
	}
	if _, b = do(t, "DELETE", url+"/"+id, ""); get(t, b, "object") != "conversation.deleted" {
		t.Errorf("delete: %s", b)
	}
	for _, m := range []string{"GET", "POST", "DELETE"} {
		if status, _ := do(t, m, url+"/"+id, "{}"); status != 404 {
			t.Errorf("%s after the delete: %d, want 404", m, status)
		}
	}
	if status, b := do(t, "POST", s.URL()+"/v1/responses", fmt.Sprintf(`{"input":"x","conversation":%q}`, id)); status != 404 {
		t.Errorf("response in a deleted conversation: %d %s", status, b)
	}
}
