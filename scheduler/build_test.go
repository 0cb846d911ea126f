package scheduler

// Sizes in the tests are small numbers; nothing in the package depends on units.

var defaults = Settings{
	MinimalAvailablePercent: 25,
	OverProvisioningPercent: 100,
	ZoneSoftAntiAffinity:    true,
	DiskSoftAntiAffinity:    true,
	AllowEmptyNodeSelector:  true,
	AllowEmptyDiskSelector:  true,
}

func with(s Settings, change func(*Settings)) Settings {
	change(&s)
	return s
}

// node returns a healthy node with the given disks.
func node(name string, disks ...Disk) Node {
	return Node{
		Name: name, Ready: true, Schedulable: true, AllowScheduling: true,
		InstanceManagerRunning: true, Disks: disks,
	}
}

func inZone(zone string, n Node) Node {
	n.Zone = zone
	return n
}

func nodeBut(n Node, change func(*Node)) Node {
	change(&n)
	return n
}

// disk returns a healthy, empty disk of size 1000 with the given free space. Its UUID is its name, so names are
// distinct across nodes where that matters.
func disk(name string, available int64) Disk {
	return Disk{
		Name: name, UUID: name, Path: "/" + name, AllowScheduling: true, Ready: true, Schedulable: true,
		StorageMaximum: 1000, StorageAvailable: available,
	}
}

func diskBut(d Disk, change func(*Disk)) Disk {
	change(&d)
	return d
}

func on(node, disk string) Replica { return Replica{Node: node, DiskUUID: disk} }

func leaving(node, disk string) Replica {
	return Replica{Node: node, DiskUUID: disk, Evicting: true}
}
