package manager

import (
	"errors"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

// nameOfNone is the name of the volume for which Capacity searches a place; it is never created.
const nameOfNone = "none"

// Capacity returns the size in bytes of the largest volume that CreateVolume with MustFit would create now; 0: none.
// The request is for all fields of the volume except its name and size. An empty node stands for any node. Capacity
// fails with *Invalid if a field breaks a rule. A strict-local volume must fit on the node. Any other volume may be
// placed on any nodes, and node must only be a Longhorn node.
func (m *Manager) Capacity(req VolumeRequest, node string) (int64, error) {
	req.Name, req.Size = nameOfNone, "1"
	v, err := m.newVolume(req)
	if err != nil {
		return 0, err
	}
	if node != "" {
		_, err := m.deps.Nodes.GetRO(node)
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("look for node %s: %w", node, err)
		}
	}
	affinity := ""
	if v.Spec.DataLocality == longhorn.DataLocalityStrictLocal {
		affinity = node
	}
	objects, err := m.clusterObjects()
	if err != nil {
		return 0, err
	}
	if checkTags(v, objects.Nodes) != nil {
		return 0, nil
	}
	snapshot := objects.Snapshot(v.Name, scheduler.SettingsOf(m.settings(), &v.Spec))
	fits := func(units int64) (bool, error) {
		v.Spec.Size = longhorn.Bytes(units * sizeUnit)
		err := m.place(v, snapshot, affinity)
		var u *scheduler.Unschedulable
		if errors.As(err, &u) {
			return false, nil
		}
		return err == nil, err
	}
	units, err := largest(fits, math.MaxInt64/sizeUnit)
	return units * sizeUnit, err
}

// largest returns the largest number up to most, at least 0, that fits; all smaller ones must fit too.
func largest(fits func(int64) (bool, error), most int64) (int64, error) {
	low, high := int64(0), int64(1) // low fits, or is 0
	for {
		ok, err := fits(min(high, most))
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if low = min(high, most); low == most {
			return most, nil
		}
		high *= 2
	}
	for low+1 < high {
		middle := low + (high-low)/2
		ok, err := fits(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}
