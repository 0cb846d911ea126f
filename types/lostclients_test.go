package types

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLostClientsAsText(t *testing.T) {
	l := LostClients{After: 7, IDs: []string{"other", clientID}}
	text := l.String()
	assert.Equal(t, "7/"+clientID+",other", text)
	read, err := ParseLostClients(text)
	require.NoError(t, err)
	assert.Equal(t, LostClients{After: 7, IDs: []string{clientID, "other"}}, read)
	assert.True(t, read.Has("Linux NFSv4.2 "+clientID+"/node-1"))
	assert.False(t, read.Has("Linux NFSv4.2 another/"+clientID))
	assert.False(t, LostClients{}.Has("Linux NFSv4.2 "+clientID+"/node-1"))

	assert.Empty(t, LostClients{After: 7}.String(), "no client")
	assert.Empty(t, LostClients{IDs: []string{"a"}}.String(), "the volume was never served")
	none, err := ParseLostClients("")
	require.NoError(t, err)
	assert.Empty(t, none.IDs)

	many := LostClients{After: 1}
	for i := range 2 * maxLostClients {
		many.IDs = append(many.IDs, fmt.Sprint("id-", i))
	}
	read, err = ParseLostClients(many.String())
	require.NoError(t, err)
	assert.Len(t, read.IDs, maxLostClients)

	for _, wrong := range []string{"a", "0/a", "-1/a", "x/a", "7/", "7", "7/a,,b", "7/a b", "7/a/b"} {
		_, err := ParseLostClients(wrong)
		assert.Error(t, err, wrong)
	}
}
