package csi

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// sizeText is a size for people. A small whole number of a binary unit is exact ("64Mi"); any other size is rounded to two
// places and followed by the bytes.
func sizeText(bytes int64) string {
	exact := resource.NewQuantity(bytes, resource.BinarySI).String()
	if last := exact[len(exact)-1]; last == 'i' && len(exact) <= len("999999Mi") {
		return exact
	}
	if bytes < 1<<10 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for value >= 1<<10 && unit < len(binaryUnits)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return fmt.Sprintf("%.2f %s (%d bytes)", value, binaryUnits[unit], bytes)
}

var binaryUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
