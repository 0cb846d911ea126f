package app

import (
	"strings"
	"testing"
)

func TestCompletionForKubectl(t *testing.T) {
	for _, tc := range []struct {
		name  string
		words []string
		want  []string
	}{
		{"nothing typed → the commands", []string{""}, []string{"status\t", "explain\t", "doctor\t", "support-bundle\t", "version\t", "ui\t", "preflight\t"}},
		{"the beginning of a command → the commands", []string{"st"}, []string{"status\t"}},
		{"explain → the kinds", []string{"explain", ""}, []string{"volume\t", "node\t", "disk\t", "claim\t"}},
		{"the beginning of a flag → the flags", []string{"status", "--"}, []string{"--output\t", "--namespace\t"}},
		{"a name, and no cluster → nothing, and no error", []string{"explain", "volume", "--kubeconfig", "/nonexistent", ""}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if err := completeForKubectl(t.Context(), plugin(), tc.words, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(out.String(), ":4\n") {
				t.Errorf("it ends without a directive: %q", out.String())
			}
			for _, want := range tc.want {
				if !strings.Contains("\n"+out.String(), "\n"+want) {
					t.Errorf("%q lacks %q", out.String(), want)
				}
			}
			if tc.want == nil && out.String() != ":4\n" {
				t.Errorf("it offers %q", out.String())
			}
		})
	}
}

func TestEveryShellGetsAScript(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		for _, c := range []string{"longhorn-manager", pluginName} {
			command := root()
			if c == pluginName {
				command = plugin()
			}
			var out strings.Builder
			command.Writer = &out
			if err := command.Run(t.Context(), []string{c, "completion", shell}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), c) || !strings.Contains(out.String(), completionFlag) {
				t.Errorf("the script of %s for %s is %q", shell, c, out.String())
			}
		}
	}
}

func TestBadArgumentsAreNamed(t *testing.T) {
	for want, args := range map[string][]string{
		"explain volume needs a name: explain volume NAME": {"explain", "volume"},
		`--output: "yaml" must be table, wide or json`:     {"status", "-o", "yaml"},
		"--duration is 1m0s: it must be at least 10m0s":    {"ui", "--duration", "1m"},
		"--port is 70000: it must be from 0 to 65535":      {"ui", "--port", "70000"},
		"--log-bytes is 0: it must be at least 1":          {"support-bundle", "--log-bytes", "0"},
		"kubeconfig /nonexistent does not exist":           {"explain", "node", "n1", "--kubeconfig", "/nonexistent"},
	} {
		command := plugin()
		var out strings.Builder
		command.Writer, command.ErrWriter = &out, &out
		err := command.Run(t.Context(), append([]string{pluginName}, args...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", args, err, want)
		}
	}
}
