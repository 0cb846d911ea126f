// Package image creates container images without a registry and without a container runtime. It writes the
// docker-archive form that containerd imports, from a root file system archive, from files of this machine, or both. It
// also creates the two images that a development cluster needs: the sandbox ("pause") image and one with tools for
// workloads. It must not know clusters or nodes.
//
//	docker-archive (one tar)
//	  manifest.json      → names config and layers, gives the image its name
//	  <sha256>.json      → config; its rootfs.diff_ids are the layers' sha256
//	  layer-0.tar …      → plain tars, lowest first
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Config is the part of an image that describes how to run it.
type Config struct {
	// Name is the full reference, such as localhost/workload:dev.
	Name       string
	Entrypoint []string
	Cmd        []string
	Env        []string
}

type runConfig struct {
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
}

type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type manifestEntry struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// WriteArchive writes the image to the file out. It replaces out only after all is written. Layers are paths of plain
// (not compressed) tars, lowest first. The result depends only on the inputs.
func WriteArchive(out string, c Config, layers []string) (err error) {
	if c.Name == "" {
		return errors.New("write image: it has no name")
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return fmt.Errorf("write image %s: %w", c.Name, err)
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if err := writeArchive(tmp, c, layers); err != nil {
		return fmt.Errorf("write image %s: %w", c.Name, err)
	}
	if err := tmp.Chmod(0o644); err != nil {
		return fmt.Errorf("write image %s: %w", c.Name, err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("write image %s: %w", c.Name, err)
	}
	return os.Rename(tmp.Name(), out)
}

func writeArchive(w io.Writer, c Config, layers []string) error {
	config := imageConfig{
		Created:      time.Unix(0, 0).UTC(),
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config:       runConfig{Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd},
		RootFS:       rootFS{Type: "layers", DiffIDs: []string{}},
	}
	entry := manifestEntry{RepoTags: []string{c.Name}, Layers: []string{}}
	for i, layer := range layers {
		digest, err := fileDigest(layer)
		if err != nil {
			return err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, "sha256:"+digest)
		entry.Layers = append(entry.Layers, fmt.Sprintf("layer-%d.tar", i))
	}
	rawConfig, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode config: %w", err)
	}
	sum := sha256.Sum256(rawConfig)
	entry.Config = hex.EncodeToString(sum[:]) + ".json"
	rawManifest, err := json.Marshal([]manifestEntry{entry})
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	t := tar.NewWriter(w)
	if err := addBytes(t, "manifest.json", rawManifest); err != nil {
		return err
	}
	if err := addBytes(t, entry.Config, rawConfig); err != nil {
		return err
	}
	for i, layer := range layers {
		if err := addLayer(t, entry.Layers[i], layer); err != nil {
			return err
		}
	}
	return t.Close()
}

func addBytes(t *tar.Writer, name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if _, err := t.Write(data); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return nil
}

func addLayer(t *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open layer: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat layer: %w", err)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if _, err := io.Copy(t, f); err != nil {
		return fmt.Errorf("add layer %s: %w", path, err)
	}
	return nil
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open layer: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read layer %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Repository returns the first image name in the docker-archive at path, for messages.
func Repository(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open image: %w", err)
	}
	defer f.Close()
	t := tar.NewReader(f)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s holds no manifest.json: not a docker-archive", path)
		}
		if err != nil {
			return "", fmt.Errorf("read image %s: %w", path, err)
		}
		if h.Name != "manifest.json" {
			continue
		}
		var entries []manifestEntry
		if err := json.NewDecoder(t).Decode(&entries); err != nil {
			return "", fmt.Errorf("read manifest of %s: %w", path, err)
		}
		if len(entries) == 0 || len(entries[0].RepoTags) == 0 {
			return "", fmt.Errorf("%s has no image name", path)
		}
		return entries[0].RepoTags[0], nil
	}
}
