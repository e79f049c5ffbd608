package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/load"
	"github.com/tautline/tautline/userspace/proxy"
)

// Decide returns the settings of package decide, or what is wrong with them.
func (c *Config) Decide() (decide.Params, error) {
	p := decide.Default()
	var errs [4]error
	p.Policy, errs[0] = decide.ParsePolicy(c.Routing.Policy)
	p.Load, errs[1] = decide.ParseLoad(c.Routing.Load)
	p.TauCompare, errs[2] = decide.ParseCompare(c.Routing.TauCompare)
	p.CountPending, errs[3] = decide.ParseCountPending(c.PrefixAffinity.CountPending)
	p.PeakPrefill = c.Routing.PeakPrefillTokensPerSecond
	p.TTFTTolerance = c.Routing.TTFTTolerance
	p.Kappa, p.Cap, p.Delta = c.Routing.Priced.Kappa, c.Routing.Priced.Cap, c.Routing.Priced.Delta
	p.Threshold = c.PrefixAffinity.Threshold
	p.Exploration = c.PrefixAffinity.Exploration
	p.SharedKeys = c.PrefixAffinity.HashKeyPath != ""
	p.PrefillRate = c.PrefixAffinity.PrefillTokensPerSecond
	p.QueuedRequestSeconds = c.PrefixAffinity.QueuedRequestSeconds
	if err := errors.Join(errs[:]...); err != nil {
		return p, err
	}
	if c.Routing.Hold > 0 && !p.Policy.Spreads() {
		return p, fmt.Errorf("routing.hold needs routing.policy: %s, which knows when no backend has KV memory; got %s", decide.PricedSpread, p.Policy)
	}
	return p, p.Validate()
}

// Index returns the settings of package index, or what is wrong with them.
func (c *Config) Index() (index.Params, error) {
	p := index.Default()
	a := &c.PrefixAffinity
	p.Capacity = a.Capacity
	p.TiersFactor = a.KVTiersFactor
	if a.TTLSecs > math.MaxInt64/int64(time.Second) {
		return p, fmt.Errorf("prefix_affinity.ttl_secs must be in [1, %d] to fit the monotonic clock, got %d", index.MaxTTLSeconds, a.TTLSecs)
	}
	p.TTL = time.Duration(a.TTLSecs) * time.Second
	if a.CapacityTokens != "auto" {
		n, err := strconv.ParseInt(a.CapacityTokens, 10, 64)
		if err != nil || n <= 0 {
			return p, fmt.Errorf("prefix_affinity.capacity_tokens must be auto or a number > 0, got %q", a.CapacityTokens)
		}
		p.CapacityTokens = n
	}
	return p, p.Validate()
}

// Load returns the settings of package load.
func (c *Config) Load() load.Params {
	p := load.Default()
	p.Window = c.Poll.Window
	return p
}

// Proxy returns the settings of package proxy.
func (c *Config) Proxy() proxy.Params {
	p := proxy.Default()
	p.Site = c.Site
	p.MaxBodyBytes = c.MaxBodyBytes
	p.BodyMemory = c.BodyMemory
	p.AllowedPaths = c.AllowedPaths
	p.Retry503 = c.Routing.Retry503
	p.Hold = c.Routing.Hold
	p.DebugHeaders = c.DebugHeaders
	p.Timeouts = proxy.Timeouts{
		Connect:      c.Timeouts.Connect,
		ResponseHead: c.Timeouts.ResponseHead,
		Idle:         c.Timeouts.Idle,
		Header:       c.Timeouts.RequestHead,
		Body:         c.Timeouts.RequestBody,
		KeepAlive:    c.Timeouts.KeepAlive,
	}
	return p
}

// SlogLevel returns the level for package slog; Validate has checked the name.
func (l Log) SlogLevel() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level))
	return level
}
