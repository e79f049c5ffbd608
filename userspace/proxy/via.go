package proxy

import (
	"net/http"
	"strconv"
	"strings"
)

// instanceDigits is the length of what follows the site in a pseudonym.
const instanceDigits = 16

// maxSites is how many sites of a Via field count: a client can write a head full of
// them, and each is compared with every backend.
const maxSites = 32

// pseudonym names this process in Via fields (RFC 9110, 7.6.3): the site, and
// digits of its own, for replicas of a site, and agents that were given no site,
// share that.
func pseudonym(site string) string { return site + "." + randomHex(instanceDigits) }

// addVia names this agent behind those that the request came through.
func (p *Proxy) addVia(h http.Header, r *http.Request) {
	appendList(h, "Via", strconv.Itoa(r.ProtoMajor)+"."+strconv.Itoa(r.ProtoMinor)+" "+p.pseudonym)
}

// through reads the Via fields of a request: whether it has been here before, and
// the sites of other agents that sent it on. A name that only looks like a
// pseudonym can at worst keep its own client's request from a site.
func (p *Proxy) through(h http.Header) (loop bool, sites []string) {
	for _, list := range h["Via"] {
		for element := range strings.SplitSeq(list, ",") {
			f := strings.Fields(element) // protocol, name, comment
			if len(f) < 2 {
				continue
			}
			site, digits, _ := strings.Cut(f[1], ".")
			switch {
			case f[1] == p.pseudonym:
				loop = true
			case len(digits) == instanceDigits && len(sites) < maxSites:
				sites = append(sites, site)
			}
		}
	}
	return loop, sites
}

// back returns the slots of gateways of these sites: a request is not sent back to
// where it came from.
func (p *Proxy) back(sites []string) (slots []int) {
	if len(sites) == 0 {
		return nil
	}
	own := p.params.Load().Site
	for slot, b := range *p.backends.Load() {
		if b == nil || b.site == "" || b.site == own {
			continue
		}
		for _, s := range sites {
			if s == b.site {
				slots = append(slots, slot)
				break
			}
		}
	}
	return slots
}
