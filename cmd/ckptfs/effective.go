package main

import (
	"maps"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
)

// effectiveConfig is .ckptfs/config.json: what a mount runs with, defaults included.
type effectiveConfig struct {
	Mountpoint string         `json:"mountpoint"`
	RAMDir     string         `json:"ram_dir"`
	Flags      map[string]any `json:"flags"` // the value of every flag of 'ckptfs mount'
}

// flagValues gives the value of every flag by its name: numbers and switches as such, anything else as it would be
// written on the command line.
func flagValues(fs *pflag.FlagSet) map[string]any {
	values := map[string]any{}
	fs.VisitAll(func(f *pflag.Flag) {
		text := f.Value.String()
		values[f.Name] = text
		switch f.Value.Type() {
		case "bool":
			values[f.Name] = text == "true"
		case "int", "float64":
			if n, err := strconv.ParseFloat(text, 64); err == nil {
				values[f.Name] = n
			}
		}
	})
	return values
}

// effective is what config.json says of a mount with this state directory: what was given, and what came of it.
func (o *mountOptions) effective(state string) map[string]any {
	values := map[string]any{}
	maps.Copy(values, o.values)
	values["state"], values["metrics-addr"], values["l2-dir"] = state, o.MetricsAddr, o.Tiers.Dir
	if o.Tiers.Dir == "" {
		values["l2-dir"] = filepath.Join(state, "disk")
	}
	return values
}
