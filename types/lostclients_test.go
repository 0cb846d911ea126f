package types

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func lostList() LostClients {
	return LostClients{
		After:    7,
		Nodes:    []LostNode{{ClientID: clientID, Addresses: []string{"10.0.0.3:10250", "[fd00::3]:8500"}}},
		Controls: []Control{{Node: "node-2", Address: "10.0.0.2:10250"}},
	}
}

func TestLostClientsAsText(t *testing.T) {
	text := lostList().String()
	assert.Equal(t, `{"after":7,"nodes":[{"clientID":"`+clientID+`","addresses":["10.0.0.3:10250","[fd00::3]:8500"]}],`+
		`"controls":[{"node":"node-2","address":"10.0.0.2:10250"}]}`, text)
	read, err := ParseLostClients(text)
	require.NoError(t, err)
	assert.Equal(t, lostList(), read)
	assert.Equal(t, []string{clientID}, read.IDs())
	id, ok := read.Of("Linux NFSv4.2 " + clientID + "/node-1")
	assert.True(t, ok)
	assert.Equal(t, clientID, id)
	_, ok = read.Of("Linux NFSv4.2 another/" + clientID)
	assert.False(t, ok)

	none, err := ParseLostClients("")
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestAListThatBreaksARuleIsNone(t *testing.T) {
	for name, change := range map[string]func(l *LostClients){
		"no generation":             func(l *LostClients) { l.After = 0 },
		"no node":                   func(l *LostClients) { l.Nodes = nil },
		"no other node":             func(l *LostClients) { l.Controls = nil },
		"an other node has no name": func(l *LostClients) { l.Controls[0].Node = "" },
		"an other node's host name": func(l *LostClients) { l.Controls[0].Address = "node-2:10250" },
		"too many other nodes":      func(l *LostClients) { l.Controls = append(l.Controls, l.Controls[0], l.Controls[0], l.Controls[0]) },
		"an identifier with spaces": func(l *LostClients) { l.Nodes[0].ClientID = "a b" },
		"one identifier twice":      func(l *LostClients) { l.Nodes = append(l.Nodes, l.Nodes[0]) },
		"a node without an address": func(l *LostClients) { l.Nodes[0].Addresses = nil },
		"an address without a port": func(l *LostClients) { l.Nodes[0].Addresses[1] = "10.0.0.3" },
		"port 0":                    func(l *LostClients) { l.Nodes[0].Addresses[1] = "10.0.0.3:0" },
		"too many addresses": func(l *LostClients) {
			for i := range MaxLostAddresses {
				l.Nodes[0].Addresses = append(l.Nodes[0].Addresses, fmt.Sprintf("10.0.1.%d:1", i))
			}
		},
		"too many nodes": func(l *LostClients) {
			for i := range MaxLostNodes {
				l.Nodes = append(l.Nodes, LostNode{ClientID: fmt.Sprint("id-", i), Addresses: []string{"10.0.0.3:1"}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := lostList()
			change(&l)
			assert.Empty(t, l.String())
			assert.Error(t, l.check())
		})
	}
	good := lostList().String()
	for name, text := range map[string]string{
		"the format of an earlier release": "7/" + clientID,
		"a rest":                           good + good,
		"a field of a later release":       strings.Replace(good, `{"after"`, `{"unless":1,"after"`, 1),
		"cut off":                          good[:len(good)-1],
		"empty":                            "{}",
	} {
		_, err := ParseLostClients(text)
		assert.Error(t, err, name)
	}
}
