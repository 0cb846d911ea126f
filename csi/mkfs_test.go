package csi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMkfsParamsMustFitTheFileSystem(t *testing.T) {
	_, err := parseParameters(map[string]string{"fsType": "xfs", "mkfsParams": "-O 64bit"})
	require.ErrorContains(t, err, `parameter mkfsParams: value "-O 64bit" has the option "-O", which mkfs.xfs may not be given`)
	p, err := parseParameters(map[string]string{"mkfsParams": "-O 64bit"})
	require.NoError(t, err)
	require.ErrorContains(t, p.checkMkfs("xfs"), `which mkfs.xfs may not be given`) // a claim's capability says xfs
	require.NoError(t, p.checkMkfs(""))                                             // a block volume: no mkfs is called
}
