// Package config reads the agent's settings: a YAML file, TAUTLINE_
// environment variables and flags over it. It is the only importer of viper.
package config

import (
	"time"
)

// Config is everything an agent can be told. Field names follow the file.
type Config struct {
	Site           string         `mapstructure:"site"`
	Listen         string         `mapstructure:"listen"`
	TLS            TLS            `mapstructure:"tls"`
	Admin          string         `mapstructure:"admin"`
	Pprof          bool           `mapstructure:"pprof"`
	MaxBodyBytes   int64          `mapstructure:"max_body_bytes"`
	BodyMemory     int64          `mapstructure:"body_memory_bytes"`
	DebugHeaders   bool           `mapstructure:"debug_headers"`
	DrainTimeout   time.Duration  `mapstructure:"drain_timeout"`
	AllowedPaths   []string       `mapstructure:"allowed_paths"`
	Backends       []Backend      `mapstructure:"backends"`
	Poll           Poll           `mapstructure:"poll"`
	Timeouts       Timeouts       `mapstructure:"timeouts"`
	Routing        Routing        `mapstructure:"routing"`
	PrefixAffinity PrefixAffinity `mapstructure:"prefix_affinity"`
	Splice         Splice         `mapstructure:"splice"`
	Log            Log            `mapstructure:"log"`
}

// TLS names the certificate of the client listener; both empty = plain HTTP.
type TLS struct {
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
}

// Backend is one model server, or another site's gateway.
type Backend struct {
	Name   string   `mapstructure:"name"`
	URL    string   `mapstructure:"url"`
	Engine string   `mapstructure:"engine"` // empty = found out; at another site: tautline
	Site   string   `mapstructure:"site"`
	Models []string `mapstructure:"models"`
}

// Poll says how the engines' metrics are read.
type Poll struct {
	Interval time.Duration `mapstructure:"interval"`
	Timeout  time.Duration `mapstructure:"timeout"`
	Window   time.Duration `mapstructure:"window"`
}

// Timeouts of the data path; 0 = none.
type Timeouts struct {
	Connect      time.Duration `mapstructure:"connect"`
	RequestHead  time.Duration `mapstructure:"request_head"`
	RequestBody  time.Duration `mapstructure:"request_body"`
	KeepAlive    time.Duration `mapstructure:"keep_alive"`
	ResponseHead time.Duration `mapstructure:"response_head"`
	Idle         time.Duration `mapstructure:"idle"`
}

// Routing chooses and parametrises the policy.
type Routing struct {
	Policy                     string        `mapstructure:"policy"`
	Load                       string        `mapstructure:"load"`
	Priced                     Priced        `mapstructure:"priced"`
	PeakPrefillTokensPerSecond float64       `mapstructure:"peak_prefill_tokens_per_second"`
	TTFTTolerance              time.Duration `mapstructure:"ttft_tolerance"`
	TauCompare                 string        `mapstructure:"tau_compare"`
	Retry503                   int           `mapstructure:"retry_503"`
	Hold                       time.Duration `mapstructure:"hold"`
}

// Priced holds the constants of the policy of that name.
type Priced struct {
	Kappa float64 `mapstructure:"kappa"`
	Cap   float64 `mapstructure:"cap"`
	Delta float64 `mapstructure:"delta"`
}

// PrefixAffinity holds what keys, memory and ids need.
type PrefixAffinity struct {
	Enabled                bool    `mapstructure:"enabled"`
	Threshold              float64 `mapstructure:"threshold"`
	Exploration            float64 `mapstructure:"exploration"`
	Capacity               int     `mapstructure:"capacity"`
	CapacityTokens         string  `mapstructure:"capacity_tokens"`
	KVTiersFactor          float64 `mapstructure:"kv_tiers_factor"`
	TTLSecs                int64   `mapstructure:"ttl_secs"`
	PrefillTokensPerSecond float64 `mapstructure:"prefill_tokens_per_second"`
	QueuedRequestSeconds   float64 `mapstructure:"queued_request_seconds"`
	TagKeyPath             string  `mapstructure:"tag_key_path"`
	TagKeyPathPrevious     string  `mapstructure:"tag_key_path_previous"`
	HashKeyPath            string  `mapstructure:"hash_key_path"`
	TokenArrays            bool    `mapstructure:"token_arrays"`
	CountPending           string  `mapstructure:"count_pending"`
}

// Splice says whether and where the kernel path is set up.
type Splice struct {
	Mode        string `mapstructure:"mode"`
	Cgroup      string `mapstructure:"cgroup"`
	PinPath     string `mapstructure:"pin_path"`
	CreditBytes int64  `mapstructure:"credit_bytes"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}
