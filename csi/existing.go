package csi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// checkExisting reports whether the request could have created the volume. If so, the request is a repetition, and
// succeeds. Otherwise the answer is AlreadyExists and names each field that differs, with both values.
//
// A request that leaves a field to a setting matches any value: the setting may have changed since the volume was
// created. The type of the file system is not compared, because a volume gets its file system when a node stages it,
// and the node refuses another type.
func checkExisting(v Volume, r VolumeRequest) error {
	if v.State == stateDeleting {
		return status.Errorf(codes.Aborted, "creating volume %s: a volume of this name is being deleted", r.Name)
	}
	if differences := differencesOf(v, r); len(differences) > 0 {
		return status.Errorf(codes.AlreadyExists, "creating volume %s: a volume of this name already exists and differs from the request: %s",
			r.Name, strings.Join(differences, "; "))
	}
	return nil
}

// differencesOf lists the fields of a volume that differ from the request.
func differencesOf(v Volume, r VolumeRequest) []string {
	var list []string
	differ := func(field, has, wants string) {
		if has != wants {
			list = append(list, fmt.Sprintf("%s is %s, but %s is requested", field, orNone(has), orNone(wants)))
		}
	}
	// known compares a field that a setting may fill, or that a manager of an earlier release does not send.
	known := func(field, has, wants string) {
		if has != "" && wants != "" {
			differ(field, has, wants)
		}
	}
	if v.SizeBytes != r.SizeBytes {
		differ("size", types.ExactSizeText(v.SizeBytes), types.ExactSizeText(r.SizeBytes))
	}
	differ("accessMode", cmp.Or(v.AccessMode, accessModeRWO), cmp.Or(r.AccessMode, accessModeRWO))
	differ("data source", v.Asked.DataSource, r.DataSource)
	known(paramNumberOfReplicas, count(v.Asked.NumberOfReplicas), count(r.NumberOfReplicas))
	known(paramDataLocality, v.Asked.DataLocality, r.DataLocality)
	for _, o := range types.VolumeOptionTable {
		known(o.Name, o.Get(v.Asked.VolumeOptions), o.Get(r.VolumeOptions))
	}
	known(paramStaleReplicaTimeout, count(v.Asked.StaleReplicaTimeoutMinutes), count(r.StaleReplicaTimeoutMinutes))
	differ(paramDiskSelector, tagsText(v.Asked.DiskSelector), tagsText(r.DiskSelector))
	differ(paramNodeSelector, tagsText(v.Asked.NodeSelector), tagsText(r.NodeSelector))
	return list
}

// count is empty for 0, which stands for a value that is not known or not requested.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// tagsText does not depend on the order of the tags.
func tagsText(tags []string) string {
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return strings.Join(slices.Compact(tags), ",")
}

func orNone(text string) string { return cmp.Or(text, "none") }
