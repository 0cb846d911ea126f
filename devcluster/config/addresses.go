// Package config renders all settings of the programs of the cluster: addresses, command lines and configuration files.
// Its functions are pure: values in, text out. It must not read or write a file, nor know where the cluster's directory
// is.
package config

import (
	"fmt"
	"net"
)

// Addresses exist only inside the cluster's own network namespaces, so that every cluster has the same addresses.
//
//	172.30.0.1        control plane          172.30.1.N       node N
//	10.96.0.0/16      services               10.244.N.0/24    pods of node N
//	10.96.0.1         the API server's       10.96.0.10       DNS
const (
	PlaneIP      = "172.30.0.1"
	APIPort      = 6443
	ServiceCIDR  = "10.96.0.0/16"
	APIServiceIP = "10.96.0.1"
	DNSServiceIP = "10.96.0.10"
	PodCIDR      = "10.244.0.0/16"
	Domain       = "cluster.local"
)

// Members returns the ranges that contain every address of a machine or pod.
func Members() []*net.IPNet {
	return []*net.IPNet{
		{IP: net.IPv4(172, 30, 0, 0), Mask: net.CIDRMask(16, 32)},
		{IP: net.IPv4(10, 244, 0, 0), Mask: net.CIDRMask(16, 32)},
	}
}

// MaxNodes is limited by the third byte of the addresses.
const MaxNodes = 250

// NodeIP returns the address of the node with the index, from 1 to MaxNodes.
func NodeIP(index int) net.IP {
	return net.IPv4(172, 30, 1, byte(index))
}

// NodePods returns the range of the pods on the node.
func NodePods(index int) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(10, 244, byte(index), 0), Mask: net.CIDRMask(24, 32)}
}

// AgentPort is the port of the agents of guests, which are nodes with a kernel of their own. Only the router's
// namespace can reach an agent, on a link of its own.
const AgentPort = 10230

// ManagementIP returns the address of the guest with the index on that link.
func ManagementIP(index int) net.IP {
	return net.IPv4(169, 254, 2, byte(index))
}

// APIURL returns the API server's address inside the cluster's network.
func APIURL() string {
	return fmt.Sprintf("https://%s:%d", PlaneIP, APIPort)
}
