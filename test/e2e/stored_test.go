package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/userspace/pin"
)

// TestStoredResponsesStayWithTheirEngine (F1, F2, F4, F5) walks through the
// stored objects of the openai package, against three engines that share
// nothing, with and without a tag key. In between the agent is restarted.
func TestStoredResponsesStayWithTheirEngine(t *testing.T) {
	for name, over := range map[string]object{
		"signed":       {"prefix_affinity.tag_key_path": keyFile(t, "k")},
		"no key":       {},
		"affinity off": {"prefix_affinity.enabled": false, "prefix_affinity.tag_key_path": keyFile(t, "k")},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := newFleet(t), startSDK(t)
			a, stop := f.start(t, over)
			c.base = "http://" + a.Addr()
			const rounds = 30 // by chance alone one in 3^30
			var ids []string
			used := map[int]bool{}
			for range rounds {
				ids = append(ids, field(c.ok("responses.create", create(nil)), "id"))
				used[f.holder(t, "responses", ids[len(ids)-1])] = true
			}
			if len(used) != 3 {
				t.Fatalf("only the engines %v were used: nothing is shown", used)
			}
			followUps(t, f, c, ids)
			stop()
			a, _ = f.start(t, over) // has nothing to remember
			c.base = "http://" + a.Addr()
			followUps(t, f, c, ids)
			lifeOfAResponse(t, f, c)
			for range 6 {
				lifeOfAConversation(t, f, c)
			}
			if free, local := a.Status().PinVerdicts["free"], a.Status().PinVerdicts["local"]; free == 0 || local == 0 {
				t.Errorf("verdicts %v", a.Status().PinVerdicts)
			}
		})
	}
}

// followUps retrieves each response and goes on from it, whole and streamed.
func followUps(t *testing.T, f *fleet, c *sdk, ids []string) {
	t.Helper()
	for _, id := range ids {
		at := f.holder(t, "responses", id)
		if got := field(c.ok("responses.retrieve", id), "id"); got != id {
			t.Errorf("retrieved %q as %q", id, got)
		}
		next := c.ok("responses.create", create(object{"previous_response_id": id}))
		if field(next, "previous_response_id") != id {
			t.Errorf("follow-up of %q names %q", id, field(next, "previous_response_id"))
		}
		if got := f.holder(t, "responses", field(next, "id")); got != at {
			t.Errorf("follow-up of a response at %s is at %s", names[at], names[got])
		}
	}
}

// lifeOfAResponse: streams, replay, cancel, input items, delete.
func lifeOfAResponse(t *testing.T, f *fleet, c *sdk) {
	t.Helper()
	first := field(c.ok("responses.create", create(nil)), "id")
	events := c.events("responses.create", create(object{"stream": true, "previous_response_id": first, "metadata": object{"id": "resp_mine"}}))
	id := field(events[0], "response", "id")
	if at := f.holder(t, "responses", first); f.holder(t, "responses", id) != at {
		t.Errorf("a streamed follow-up left %s", names[at])
	}
	whole := 0
	for _, e := range events {
		if e["response"] == nil {
			continue
		}
		whole++
		if field(e, "response", "id") != id || field(e, "response", "previous_response_id") != first || field(e, "response", "metadata", "id") != "resp_mine" {
			t.Errorf("%s: id %q, previous %q, metadata %q", e["type"], field(e, "response", "id"),
				field(e, "response", "previous_response_id"), field(e, "response", "metadata", "id"))
		}
	}
	if whole < 3 {
		t.Errorf("%d events with the whole response, want created, in_progress and an end", whole)
	}

	again := c.events("responses.retrieve", id, object{"stream": true, "starting_after": 3})
	if want := events[4:]; len(again) != len(want) || again[0]["sequence_number"] != want[0]["sequence_number"] {
		t.Errorf("after event 3: %d events from %v on, want %d", len(again), again[0]["sequence_number"], len(want))
	}
	if end := again[len(again)-1]; field(end, "response", "id") != id {
		t.Errorf("%s of the replay: id %q, want %q", end["type"], field(end, "response", "id"), id)
	}
	if list, _ := c.ok("responses.inputItems.list", id)["data"].([]any); len(list) != 1 {
		t.Errorf("input items: %v", list)
	}
	if got := c.ok("responses.inputTokens.count", object{"model": "stand-in", "input": "x", "previous_response_id": id}); got["input_tokens"] == nil {
		t.Errorf("input tokens: %v", got)
	}

	long := create(object{"background": true, "max_output_tokens": 100000, "min_tokens": 100000})
	running := field(c.ok("responses.create", long), "id")
	if got := c.ok("responses.cancel", running); got["id"] != running || got["status"] != "cancelled" {
		t.Errorf("cancelled: id %v, status %v", got["id"], got["status"])
	}
	if e := c.events("responses.retrieve", running, object{"stream": true})[0]; e["type"] != "response.failed" || field(e, "response", "id") != running {
		t.Errorf("stream of a cancelled response: %v %v", e["type"], field(e, "response", "id"))
	}

	c.ok("responses.delete", id)
	for _, at := range []answer{c.call("responses.retrieve", id), c.call("responses.create", create(object{"previous_response_id": id}))} {
		// The engine says so: its text holds its own id, the client gets the one it knows.
		if at.Error == nil || at.Error.Status != 404 || !strings.Contains(at.Error.Message, "'"+id+"'") {
			t.Errorf("after the delete: %+v", at.Error)
		}
	}
	f.holder(t, "responses", first) // is still there
}

// lifeOfAConversation: every call of the resource and of its items.
func lifeOfAConversation(t *testing.T, f *fleet, c *sdk) {
	t.Helper()
	conv := c.ok("conversations.create", object{"metadata": object{"topic": "conv_mine"}, "items": []object{message("first")}})
	id := field(conv, "id")
	at := f.holder(t, "conversations", id)
	if got := c.ok("conversations.retrieve", id); field(got, "id") != id || field(got, "metadata", "topic") != "conv_mine" {
		t.Errorf("conversation %v", got)
	}
	if got := c.ok("conversations.update", id, object{"metadata": object{"topic": "b"}}); field(got, "id") != id || field(got, "metadata", "topic") != "b" {
		t.Errorf("updated conversation %v", got)
	}
	for i, names := range []any{id, object{"id": id}} { // both forms of the member
		r := c.ok("responses.create", create(object{"conversation": names}))
		if field(r, "conversation", "id") != id || f.holder(t, "responses", field(r, "id")) != at {
			t.Errorf("form %d: conversation %q of a response of %s", i, field(r, "conversation", "id"), id)
		}
	}
	added, _ := c.ok("conversations.items.create", id, object{"items": []object{message("more")}})["data"].([]any)
	if len(added) != 1 {
		t.Fatalf("added %v", added)
	}
	item := field(added[0].(object), "id")
	if list, _ := c.ok("conversations.items.list", id)["data"].([]any); len(list) != 6 { // 1 + 2 x (question, answer) + 1
		t.Errorf("%d items", len(list))
	}
	if got := c.ok("conversations.items.retrieve", item, object{"conversation_id": id}); field(got, "id") != item || strings.Contains(item, ".") {
		t.Errorf("item %q comes as %v", item, got)
	}
	if got := c.ok("conversations.items.delete", item, object{"conversation_id": id}); field(got, "id") != id {
		t.Errorf("conversation after its item went: %v", got)
	}
	c.fails(404, "conversations.items.retrieve", item, object{"conversation_id": id})
	if got := c.ok("conversations.delete", id); field(got, "id") != id || got["deleted"] != true {
		t.Errorf("deleted: %v", got)
	}
	if e := c.fails(404, "conversations.retrieve", id); !strings.Contains(e.Message, "'"+id+"'") {
		t.Errorf("after the delete: %+v", e)
	}
}

// TestWhatMustNotReachAnEngine: each refusal has its status, and the engines
// never hear of the request.
func TestWhatMustNotReachAnEngine(t *testing.T) {
	f, c := newFleet(t), startSDK(t)
	over := object{"prefix_affinity.tag_key_path": keyFile(t, "k")}
	a, _ := f.start(t, over)
	c.base = "http://" + a.Addr()
	var at [3]string // a response of each engine
	for slices.Contains(at[:], "") {
		id := field(c.ok("responses.create", create(nil)), "id")
		at[f.holder(t, "responses", id)] = id
	}
	conv := field(c.ok("conversations.create", object{}), "id")
	key, err := pin.LoadKey(over["prefix_affinity.tag_key_path"].(string))
	if err != nil {
		t.Fatal(err)
	}
	other, err := pin.NewTagger("lon-1", [][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := other.Tag(pin.ClusterMark("gpu0"), "resp_1")

	// silent runs calls that must all fail alike, without an engine.
	silent := func(name string, status int, verdict string, calls ...func() failed) {
		t.Helper()
		before, counted := f.hits(), a.Status().PinVerdicts[verdict]
		for _, call := range calls {
			e := call()
			if e.Status != status {
				t.Errorf("%s: %+v, want %d", name, e, status)
			}
			if status == http.StatusServiceUnavailable && e.RetryAfter != "5" {
				t.Errorf("%s: Retry-After %q", name, e.RetryAfter)
			}
		}
		if after := f.hits(); after != before {
			t.Errorf("%s: the engines got %d requests", name, after-before)
		}
		if got := a.Status().PinVerdicts[verdict] - counted; got != uint64(len(calls)) {
			t.Errorf("%s: verdict %s counted %d times, want %d", name, verdict, got, len(calls))
		}
	}
	// everywhere names an id in all places that take one.
	everywhere := func(status int, id string) (calls []func() failed) {
		add := func(op string, args ...any) {
			calls = append(calls, func() failed { return c.fails(status, op, args...) })
		}
		if strings.HasPrefix(id, "conv_") {
			add("conversations.retrieve", id)
			add("conversations.update", id, object{"metadata": object{}})
			add("conversations.delete", id)
			add("conversations.items.list", id)
			add("conversations.items.create", id, object{"items": []object{message("x")}})
			add("conversations.items.retrieve", "msg_1", object{"conversation_id": id})
			add("conversations.items.delete", "msg_1", object{"conversation_id": id})
			add("responses.create", create(object{"conversation": id}))
			add("responses.create", create(object{"conversation": object{"id": id}}))
			return calls
		}
		add("responses.retrieve", id)
		add("responses.retrieve", id, object{"stream": true})
		add("responses.cancel", id)
		add("responses.delete", id)
		add("responses.inputItems.list", id)
		add("responses.create", create(object{"previous_response_id": id}))
		add("responses.create", create(object{"previous_response_id": id, "stream": true}))
		add("responses.compact", object{"model": "stand-in", "previous_response_id": id})
		add("responses.inputTokens.count", object{"previous_response_id": id})
		return calls
	}
	paths := func(calls []func() failed, n int) []func() failed { return calls[:n] }

	silent("forged response", 404, "forged", everywhere(404, forged(t, at[0]))...)
	silent("forged conversation", 404, "forged", everywhere(404, forged(t, conv))...)
	silent("unsigned", 404, "forged", everywhere(404, "resp_fra-1."+pin.ClusterMark("gpu0")+"..1")...)
	silent("unknown site", 404, "gone", everywhere(404, elsewhere)...)
	silent("untagged response in a path", 404, "untagged", paths(everywhere(404, untagged(t, at[0])), 5)...)
	silent("untagged conversation in a path", 404, "untagged", paths(everywhere(404, untagged(t, conv)), 7)...)
	silent("other model", 404, "other_model", func() failed {
		return c.fails(404, "responses.create", create(object{"previous_response_id": at[0], "model": "another"}))
	})
	silent("chosen id that looks tagged", 400, "chosen_tag", func() failed {
		return c.fails(400, "responses.create", create(object{"request_id": at[0]}))
	})

	// A tag put on another id is allowed: it leads to an engine that says no.
	before := f.hits()
	if e := c.fails(404, "responses.retrieve", moved(t, at[0], at[1])); !strings.Contains(e.Message, "not found") {
		t.Errorf("moved: %+v", e)
	}
	// An untagged id in a body steers nothing: some engine is asked.
	c.fails(404, "responses.create", create(object{"previous_response_id": "resp_unknown"}))
	if got := f.hits() - before; got != 2 {
		t.Errorf("moved and untagged: %d requests reached an engine, want 2", got)
	}
	if got := c.ok("responses.create", create(object{"request_id": "resp_chosen"})); !strings.HasSuffix(field(got, "id"), ".chosen") {
		t.Errorf("chosen id comes as %q", field(got, "id"))
	}

	// An engine that takes no requests.
	if err := f.engines[2].Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if slices.ContainsFunc(a.Status().Backends, func(b telemetry.BackendStatus) bool { return b.Name == "gpu2" && !b.Admitted }) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a dead engine is admitted")
		}
	}
	silent("not admitting", 503, "not_admitting", everywhere(503, at[2])...)

	// A backend that left the configuration.
	if err := a.Reload(f.config(t, 2, over)); err != nil {
		t.Fatal(err)
	}
	silent("gone", 404, "gone", everywhere(404, at[2])...)
	for _, id := range at[:2] {
		c.ok("responses.retrieve", id)
	}
}

// TestKeysRotate: ids of the old key live on while it is the previous one, new
// ones are signed with the new key, and after that the old ones are forged.
func TestKeysRotate(t *testing.T) {
	f, c := newFleet(t), startSDK(t)
	old, fresh := keyFile(t, "o"), keyFile(t, "n")
	a, _ := f.start(t, object{"prefix_affinity.tag_key_path": old})
	c.base = "http://" + a.Addr()
	reload := func(over object) {
		t.Helper()
		if err := a.Reload(f.config(t, 3, over)); err != nil {
			t.Fatal(err)
		}
	}
	first := field(c.ok("responses.create", create(nil)), "id")
	reload(object{"prefix_affinity.tag_key_path": fresh, "prefix_affinity.tag_key_path_previous": old})
	retagged := field(c.ok("responses.retrieve", first), "id")
	if retagged == first || untagged(t, retagged) != untagged(t, first) {
		t.Errorf("under the new key %q comes as %q", first, retagged)
	}
	for _, id := range []string{first, retagged} {
		next := c.ok("responses.create", create(object{"previous_response_id": id}))
		if f.holder(t, "responses", field(next, "id")) != f.holder(t, "responses", first) {
			t.Errorf("follow-up of %q went astray", id)
		}
	}
	reload(object{"prefix_affinity.tag_key_path": fresh})
	c.fails(404, "responses.retrieve", first)
	c.ok("responses.retrieve", retagged)
	if err := a.Reload(f.config(t, 3, object{"prefix_affinity.tag_key_path": "/nonexistent"})); err == nil {
		t.Error("a key that cannot be read was accepted")
	}
	c.ok("responses.retrieve", retagged) // the refused reload changed nothing
}
