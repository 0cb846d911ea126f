package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// pathCapacities is the path under which the CSI driver reads the largest size that a new volume could have. Longhorn
// has no such path.
const (
	resourceCapacities = "storagecapacities"
	pathCapacities     = "/v1/" + resourceCapacities
)

// capacityParameters are all query parameters of pathCapacities.
var capacityParameters = slices.Concat(
	[]string{v1.CapacityNode, v1.CapacityNumberOfReplicas, v1.CapacityDataLocality, v1.CapacityAccessMode},
	placeOptions(),
	[]string{v1.CapacityDiskSelector, v1.CapacityNodeSelector},
)

// placeOptions returns the names of the options of a volume that decide where its replicas may be placed.
func placeOptions() []string {
	var names []string
	for _, o := range types.VolumeOptionTable {
		if o.DecidesPlace {
			names = append(names, o.Name)
		}
	}
	return names
}

func serveCapacity(m *manager.Manager) func(*http.Request) (reply, error) {
	return func(r *http.Request) (reply, error) {
		query := r.URL.Query()
		req, err := capacityRequest(query)
		if err != nil {
			return reply{}, err
		}
		size, err := m.Capacity(req, query.Get(v1.CapacityNode))
		if err != nil {
			return reply{}, err
		}
		base := baseURL(r)
		return reply{http.StatusOK, &v1.StorageCapacity{
			Resource: v1.Resource{
				ID: v1.TypeStorageCapacity, Type: v1.TypeStorageCapacity, Actions: map[string]string{},
				Links: map[string]string{"self": strings.TrimSuffix(base, "/v1") + pathCapacities + "?" + query.Encode()},
			},
			MaximumSize: strconv.FormatInt(size, 10),
		}}, nil
	}
}

func capacityRequest(query url.Values) (manager.VolumeRequest, error) {
	for key := range query {
		if !slices.Contains(capacityParameters, key) {
			return manager.VolumeRequest{}, &manager.Invalid{Field: "query", Value: key, Rule: "must be one of " + strings.Join(capacityParameters, ", ")}
		}
	}
	replicas := 0
	if text := query.Get(v1.CapacityNumberOfReplicas); text != "" {
		var err error
		if replicas, err = strconv.Atoi(text); err != nil {
			return manager.VolumeRequest{}, &manager.Invalid{Field: v1.CapacityNumberOfReplicas, Value: text, Rule: "must be a whole number"}
		}
	}
	var options types.VolumeOptions
	for _, o := range types.VolumeOptionTable {
		if o.DecidesPlace {
			o.Set(&options, query.Get(o.Name))
		}
	}
	return manager.VolumeRequest{
		NumberOfReplicas: replicas,
		DataLocality:     query.Get(v1.CapacityDataLocality),
		AccessMode:       query.Get(v1.CapacityAccessMode),
		VolumeOptions:    options,
		DiskSelector:     selectorOf(query.Get(v1.CapacityDiskSelector)),
		NodeSelector:     selectorOf(query.Get(v1.CapacityNodeSelector)),
	}, nil
}

// selectorOf splits tags that are separated by commas.
func selectorOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
