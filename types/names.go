package types

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Names that users and other programs rely on.
const (
	// Namespace is the default namespace of the installation.
	Namespace = "longhorn-system"
	// DriverName is the CSI driver's name.
	DriverName = "driver.longhorn.io"
	// Finalizer protects every object that represents data or a running process.
	Finalizer = "longhorn.io"
	// DeviceDirectory holds one block device per attached volume.
	DeviceDirectory = "/dev/longhorn"
	// RuntimeDirectory, on every node, holds the sockets between the daemon and the instance manager.
	RuntimeDirectory = "/run/longhorn"
	// ReplicaDirectory is the directory of a disk that holds replicas.
	ReplicaDirectory = "replicas"
	// LeaderLease is the Lease of the daemon that runs the cluster-scoped controllers.
	LeaderLease = "longhorn-manager-leader"
	// DefaultSettingsConfigMap holds values of settings, as YAML under DefaultSettingsKey.
	DefaultSettingsConfigMap = "longhorn-default-setting"
	DefaultSettingsKey       = "default-setting.yaml"
	// DefaultResourceConfigMap has Longhorn's default backup target, as YAML under DefaultResourceKey. This product
	// has no backups.
	DefaultResourceConfigMap = "longhorn-default-resource"
	DefaultResourceKey       = "default-resource.yaml"
	// StorageClassConfigMap has the StorageClass that the manager maintains, as YAML under StorageClassKey.
	StorageClassConfigMap = "longhorn-storageclass"
	StorageClassKey       = "storageclass.yaml"
	// StorageClassTemplate has the initial text of StorageClassConfigMap. The manifest contains this template instead
	// of the ConfigMap itself. So applying the manifest again does not overwrite the users' changes in the ConfigMap.
	StorageClassTemplate = "longhorn-default-storageclass"
	// LeaderAccount is the ServiceAccount that the leader uses for the whole cluster.
	LeaderAccount = "longhorn-manager-leader"
	// APIPort is where every daemon serves the REST API.
	APIPort = 9500
	// ReplicaPort is where an instance manager serves replicas over NBD.
	ReplicaPort = 8500
	// NFSPort is the port on which a share manager serves its volume. On ShareHealthPort it reports its health.
	NFSPort         = 2049
	ShareHealthPort = 9600
	// APIService is the Service in front of all daemons.
	APIService = "longhorn-backend"
	// PageService is the Service of the web page, which the same daemons serve.
	PageService = "longhorn-frontend"
	// APIAudience is the audience of the tokens that the REST API accepts.
	APIAudience = "longhorn-backend"
	// APITLSSecret has the daemons' certificate, which the leader creates. APICAConfigMap has the information that
	// clients need about it: the CA certificates under APICAKey, and under APITrustedKey whether trusted-network mode
	// is on.
	APITLSSecret   = "longhorn-backend-tls"
	APICAConfigMap = "longhorn-backend-ca"
	APICAKey       = "ca.crt"
	APITrustedKey  = "trusted-network"
)

// MaxVolumeNameLength is the maximum length of a volume name, in bytes: a replica's name adds 11 to it.
const MaxVolumeNameLength = 40

var volumeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// VolumeName derives a valid volume name from any text. The same text always gives the same name: in lower case, at
// most MaxVolumeNameLength bytes. A longer text is truncated, and a checksum distinguishes it (Longhorn's rule). An
// error means that no name can be derived from the text.
func VolumeName(text string) (string, error) {
	name := strings.ToLower(text)
	if len(name) > MaxVolumeNameLength {
		sum := sha512.Sum512([]byte(text))
		name = strings.TrimRight(name[:31], "-") + "-" + hex.EncodeToString(sum[:])[:8]
	}
	if !volumeName.MatchString(name) {
		return "", fmt.Errorf("name %q: a volume's name must consist of letters, digits and '-', and start and end with a letter or digit", text)
	}
	return name, nil
}

// EngineName is the name of a volume's engine.
func EngineName(volume string) string { return volume + "-e-0" }

// NewReplicaName generates a name for a new replica of a volume: <volume>-r-<8 hex>.
func NewReplicaName(volume string) string { return volume + "-r-" + randomHex(4) }

// NewDataDirectoryName generates a name for a new replica's directory: <volume>-<8 hex>.
func NewDataDirectoryName(volume string) string { return volume + "-" + randomHex(4) }

// ReplicaDataPath is a replica's directory on its node.
func ReplicaDataPath(diskPath, dataDirectoryName string) string {
	return path.Join(diskPath, ReplicaDirectory, dataDirectoryName)
}

// DevicePath is an attached volume's block device on its node.
func DevicePath(volume string) string { return path.Join(DeviceDirectory, volume) }

// InstanceManagerName is the name of a node's instance manager, and of its pod. It does not depend on the image, so
// another image does not lead to a second instance manager.
func InstanceManagerName(node string) string {
	sum := sha512.Sum512([]byte(node + "/aio/v1"))
	return "instance-manager-" + hex.EncodeToString(sum[:])[:32]
}

// NodeLabel is the value of a label that names a node. If the name is too long for a label's value, NodeLabel returns
// its start and a hash of the whole name. Labels are for users' selectors; an object's spec says which node it
// belongs to.
func NodeLabel(node string) string {
	if len(node) <= maxLabelValue {
		return node
	}
	sum := sha512.Sum512([]byte(node))
	hash := "-" + hex.EncodeToString(sum[:])[:10]
	return node[:maxLabelValue-len(hash)] + hash
}

// maxLabelValue is the maximum length of a label's value in Kubernetes.
const maxLabelValue = 63

// ShareManagerPodName is the name of the pod that serves a shared volume.
func ShareManagerPodName(volume string) string { return "share-manager-" + volume }

// ShareSliceName is the name of the EndpointSlice of a shared volume.
func ShareSliceName(volume string) string { return "share-manager-" + volume }

// ShareTicketID is the id of the ticket that attaches a shared volume where its share manager's pod is.
func ShareTicketID(volume string) string { return "share-manager-controller-" + volume }

// InstanceManagerSocket is the gRPC socket of a node's instance manager.
func InstanceManagerSocket() string { return path.Join(RuntimeDirectory, "instance-manager.sock") }

// ShareDirectory is a directory on every node. It holds the part of the data plane that the node's share managers may
// use. A share manager's pod sees nothing else of RuntimeDirectory.
func ShareDirectory() string { return path.Join(RuntimeDirectory, "share") }

// GenerationsSocket is the socket on which share managers ask a node's instance manager whether the engine of their
// volume is in force.
func GenerationsSocket() string { return GenerationsSocketBeside(InstanceManagerSocket()) }

// GenerationsSocketBeside is GenerationsSocket for an instance manager with the given gRPC socket.
func GenerationsSocketBeside(instanceManager string) string {
	return path.Join(path.Dir(instanceManager), "share", "generations.sock")
}

// ToolSocket is the NBD socket on which a node's instance manager offers exports to tools.
func ToolSocket() string { return path.Join(RuntimeDirectory, "nbd.sock") }

// VolumeSecretName is the Secret that holds a volume's data-plane key.
func VolumeSecretName(volume string) string { return volume + "-data-plane" }

// VolumeSecretKey is the key in that Secret; its value is 32 random bytes.
const VolumeSecretKey = "key"

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails: crypto/rand crashes the process instead
	return hex.EncodeToString(b)
}

// UpgradeLeaseName is the Lease of the node whose data plane is being upgraded. Only one node holds it at a time.
const UpgradeLeaseName = "longhorn-data-plane-upgrade"

// HolderSocket is the socket on which a node's daemon queries the holder of the block devices, and passes it another
// program that should serve them.
func HolderSocket() string { return path.Join(RuntimeDirectory, "holder.sock") }

// DiskLeaseName is the name of the Lease that claims a disk UUID.
func DiskLeaseName(uuid string) string { return diskLeasePrefix + strings.ToLower(uuid) }

const diskLeasePrefix = "disk-"

// DiskOfLease returns the disk UUID that a Lease of this name claims; false: the Lease is not for a disk.
func DiskOfLease(name string) (string, bool) {
	uuid, ok := strings.CutPrefix(name, diskLeasePrefix)
	return uuid, ok && diskUUID.MatchString(uuid)
}

var diskUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
