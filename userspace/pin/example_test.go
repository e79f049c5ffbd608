package pin_test

import (
	"fmt"
	"log"

	"github.com/tautline/tautline/userspace/pin"
)

type everybody struct{}

func (everybody) Admits(int) bool         { return true }
func (everybody) Serves(int, string) bool { return true }

// A response gets its tag on the way out; the follow-up that names it goes to
// the backend that stored it, which sees its own id.
func Example() {
	tagger, err := pin.NewTagger("fra", nil) // no key: fine for an example only
	if err != nil {
		log.Fatal(err)
	}
	roster, err := pin.NewRoster("fra", []pin.Backend{{ID: 0, Site: "fra", Name: "pool-a"}, {ID: 1, Site: "fra", Name: "pool-b"}})
	if err != nil {
		log.Fatal(err)
	}

	r := pin.NewRewriter(tagger.Stamp(pin.ClusterMark("pool-b")), pin.FormOf(200, "application/json", ""))
	var answer []byte
	for _, piece := range []string{`{"id":"re`, `sp_12","object":"response"}`} {
		answer = r.Append(answer, []byte(piece)) // a copy loop writes each result and starts anew at dst[:0]
	}
	answer = r.Finish(answer)
	fmt.Printf("%s\n", answer)

	body := []byte(`{"model":"m","previous_response_id":"resp_fra.574c3c50..12","input":"And then?"}`)
	path := pin.ParsePath("/v1/responses")
	names := pin.ReadBody(body)
	d := roster.Resolve(tagger, path, names, "m", everybody{})
	fmt.Println(d.Verdict, d.ID)
	if d.Verdict == pin.Local {
		fmt.Printf("%s %s\n", path.Strip(tagger.Site()), pin.StripBody(body, tagger.Site(), names.Spans...))
	}
	// Output:
	// {"id":"resp_fra.574c3c50..12","object":"response"}
	// local 1
	// /v1/responses {"model":"m","previous_response_id":"resp_12","input":"And then?"}
}
