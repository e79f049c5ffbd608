package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
)

//go:embed defaults.yaml
var defaultsYAML []byte

// DefaultsYAML returns the commented file that holds every default.
func DefaultsYAML() []byte { return slices.Clone(defaultsYAML) }

// envPrefix starts the name of every environment variable that is read.
const envPrefix = "TAUTLINE"

// Load reads the settings: defaults, then the file at path ("" = none), then
// the environment, then overrides (dotted names, as from flags). It validates.
// An unknown key in the file is an error that names it.
func Load(path string, overrides map[string]any) (*Config, error) {
	v, err := withDefaults()
	if err != nil {
		return nil, err
	}
	if path != "" {
		if err := merge(v, path); err != nil {
			return nil, err
		}
	}
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AutomaticEnv()
	for k, val := range overrides {
		v.Set(k, val)
	}
	for _, k := range v.AllKeys() {
		// YAML reads true and false as what they are also where they are words of ours.
		if yes, ok := v.Get(k).(bool); ok {
			v.Set(k, strconv.FormatBool(yes))
		}
	}
	var c Config
	if err := v.UnmarshalExact(&c); err != nil {
		return nil, tidy(path, err)
	}
	c.complete()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

// withDefaults returns a viper that knows every key, which AutomaticEnv needs.
func withDefaults() (*viper.Viper, error) {
	d := viper.New()
	d.SetConfigType("yaml")
	if err := d.ReadConfig(bytes.NewReader(defaultsYAML)); err != nil {
		return nil, fmt.Errorf("defaults: %w", err)
	}
	v := viper.New()
	v.SetConfigType("yaml")
	for _, k := range d.AllKeys() {
		v.SetDefault(k, d.Get(k))
	}
	return v, nil
}

func merge(v *viper.Viper, path string) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file", path)
	}
	if err != nil {
		return err
	}
	if err := v.ReadConfig(bytes.NewReader(raw)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return unknownKeys(path, raw)
}

// unknownKeys finds what viper keeps quiet about: it drops a key without a value,
// so that UnmarshalExact never sees it. Keys of backends are left to the latter.
func unknownKeys(path string, raw []byte) error {
	d, err := viper.NewCodecRegistry().Decoder("yaml")
	if err != nil {
		return err
	}
	file := map[string]any{}
	if err := d.Decode(raw, file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	known, err := withDefaults()
	if err != nil {
		return err
	}
	var unknown []string
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for k, val := range m {
			name := prefix + k
			inner, isMap := val.(map[string]any)
			switch {
			case !known.IsSet(name):
				unknown = append(unknown, name)
			case isMap:
				walk(name+".", inner)
			}
		}
	}
	walk("", file)
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("%s: unknown key: %s", path, strings.Join(unknown, ", "))
	}
	return nil
}

// tidy turns mapstructure's report into one line that names the keys.
func tidy(path string, err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "decoding failed due to the following error(s): ")
	if path == "" {
		path = "configuration"
	}
	return fmt.Errorf("%s: %s", path, text)
}

// complete fills what follows from other settings.
func (c *Config) complete() {
	for i := range c.Backends {
		b := &c.Backends[i]
		if b.Site == "" {
			b.Site = c.Site
		}
		if b.Name == "" {
			b.Name = fmt.Sprintf("backend%d", i)
		}
		b.URL = strings.TrimSuffix(b.URL, "/")
	}
}
