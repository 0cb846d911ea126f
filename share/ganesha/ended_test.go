package ganesha

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What Ganesha 4.3 says, with the name of a client of Linux.
const (
	sayEnded = "24/11/2026 14:23:09 : epoch 6b059db8 : share-manager-pvc-1 : nfs-ganesha-22[reaper] fs_rm_clid_impl :CLIENT ID :EVENT :Failed to remove client recovery dir (/%s), errno: No such file or directory (2)\n"
	sayCame  = "24/11/2026 14:23:10 : epoch 6b059db8 : share-manager-pvc-1 : nfs-ganesha-22[svc_5] fs_create_clid_name :CLIENT ID :DEBUG :Created client name [%s]\n"
	linux    = "::ffff:169.254.99.1-(39:Linux NFSv4.2 longhorn-csi-plugin-b97sm)"
)

// kept are the clients of which there are records.
type kept struct {
	t *testing.T
	*Departures
	in string // the directory in force
}

func newKept(t *testing.T, clients ...string) *kept {
	t.Helper()
	recovery := t.TempDir()
	k := &kept{t: t, Departures: NewDepartures(recovery, quiet()), in: filepath.Join(recovery, RecordsName, "node0.abcdef")}
	for _, name := range clients {
		require.NoError(t, os.MkdirAll(filepath.Join(k.in, name), 0o700))
	}
	return k
}

func (k *kept) says(form, client string) { k.Hear(fmt.Appendf(nil, form, client)) }

func (k *kept) wantRecord(client string, want bool) {
	k.t.Helper()
	_, err := os.Stat(filepath.Join(k.in, client))
	assert.Equal(k.t, want, err == nil, "record of %s", client)
}

func TestTheRecordOfAClientThatHasEndedGoes(t *testing.T) {
	const other = "::ffff:169.254.99.1-(39:Linux NFSv4.2 longhorn-csi-plugin-6ksqt)"
	for _, c := range []struct {
		name string
		tell func(k *kept)
		want bool
	}{
		{"it has ended → the record goes", func(k *kept) { k.says(sayEnded, linux) }, false},
		{"it has not → it stays", func(*kept) {}, true},
		{"another one has ended → it stays", func(k *kept) { k.says(sayEnded, other) }, true},
		{"it was back at once → it stays", func(k *kept) {
			k.says(sayEnded, linux)
			k.says(sayCame, linux)
		}, true},
		{"it was back within the time → it stays", func(k *kept) {
			k.says(sayEnded, linux)
			time.Sleep(endedSettle - time.Millisecond)
			k.says(sayCame, linux)
		}, true},
		{"another one came → the record goes", func(k *kept) {
			k.says(sayEnded, linux)
			k.says(sayCame, other)
		}, false},
		{"it came and has ended → the record goes", func(k *kept) {
			k.says(sayCame, linux)
			k.says(sayEnded, linux)
		}, false},
		{"it was back after the record had gone → there is one again", func(k *kept) {
			k.says(sayEnded, linux)
			time.Sleep(endedSettle + 2*endedRound)
			k.wantRecord(linux, false)
			k.says(sayCame, linux)
		}, true},
		{"it was back long after that → the server makes the record", func(k *kept) {
			k.says(sayEnded, linux)
			time.Sleep(endedMemory + 2*endedRound)
			k.says(sayCame, linux)
		}, false},
		{"it was back a while after that → there is one again", func(k *kept) {
			k.says(sayEnded, linux)
			time.Sleep(endedMemory - 2*endedRound)
			k.says(sayCame, linux)
		}, true},
		{"another server has started → it stays, for that one waits for the client", func(k *kept) {
			k.says(sayEnded, linux)
			k.ServerStarts()
		}, true},
		{"another server has started after the record had gone, and it was back → there is one again", func(k *kept) {
			k.says(sayEnded, linux)
			time.Sleep(endedSettle + 2*endedRound)
			k.ServerStarts()
			k.says(sayCame, linux)
		}, true},
		{"another client's address reads like its return → the record goes", func(k *kept) {
			k.says(sayEnded, linux)
			k.Hear([]byte("24/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[svc_1] nfs4_op_setclientid :CLIENT ID :DEBUG :r_addr=] fs_create_clid_name :CLIENT ID :DEBUG :Created client name [" + linux + "]\n"))
		}, false},
		{"it was back, and has ended again → the record goes", func(k *kept) {
			k.says(sayEnded, linux)
			time.Sleep(endedSettle + 2*endedRound)
			k.says(sayCame, linux)
			time.Sleep(2 * endedRound)
			k.wantRecord(linux, true)
			k.says(sayEnded, linux)
		}, false},
		{"the server cannot remove it for another reason → it stays", func(k *kept) {
			k.Hear([]byte("24/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[reaper] fs_rm_clid_impl :CLIENT ID :EVENT :Failed to remove client recovery dir (/" + linux + "), errno: Permission denied (13)\n"))
		}, true},
		{"a client's name reads like the line → it stays", func(k *kept) {
			k.Hear([]byte("24/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[svc_1] nfs4_op_setclientid :CLIENT ID :DEBUG :name=fs_rm_clid_impl :CLIENT ID :EVENT :Failed to remove client recovery dir (/" + linux + "), errno: No such file or directory (2)\n"))
		}, true},
		{"a line leads out of the directory → it stays", func(k *kept) { k.says(sayEnded, "../node0.abcdef/"+linux) }, true},
		{"a line means the directory → it stays", func(k *kept) {
			k.says(sayEnded, ".")
			k.says(sayEnded, "..")
			assert.Empty(k.t, k.clients)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t, linux, other)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go k.Run(ctx)
				c.tell(k)
				time.Sleep(endedSettle + 2*endedRound)
				synctest.Wait()
				k.wantRecord(linux, c.want)
				time.Sleep(endedMemory + 2*endedRound)
				synctest.Wait()
				assert.Empty(t, k.clients, "all is forgotten in the end")
			})
		})
	}
}

// While a record is being removed the volume may take its time, and clients come and go.
func TestAClientThatIsBackWhileItsRecordGoes(t *testing.T) {
	const other = "::ffff:169.254.99.1-(39:Linux NFSv4.2 longhorn-csi-plugin-6ksqt)"
	for _, c := range []struct {
		name      string
		meanwhile func(k *kept)
		want      bool
	}{
		{"it is back → there is one again", func(k *kept) { k.says(sayCame, linux) }, true},
		{"it is back, has ended, and is back → there is one again", func(k *kept) {
			k.says(sayCame, linux)
			k.says(sayEnded, linux)
			k.says(sayCame, linux)
		}, true},
		{"it stays away → there is none", func(*kept) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t, linux)
				k.says(sayEnded, linux)
				time.Sleep(endedSettle)
				k.remove = func(name string) []string {
					c.meanwhile(k)
					return k.removeRecord(name)
				}
				k.look()
				k.wantRecord(linux, c.want)
			})
		})
	}
	t.Run("another one's is removed → it keeps its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newKept(t, linux, other)
			k.says(sayEnded, linux)
			k.says(sayEnded, other)
			time.Sleep(endedSettle)
			var removed []string
			k.remove = func(name string) []string {
				removed = append(removed, name)
				k.says(sayCame, linux)
				k.says(sayCame, other)
				return k.removeRecord(name)
			}
			k.look()
			assert.Len(t, removed, 1)
			k.wantRecord(linux, true)
			k.wantRecord(other, true)
		})
	})
	t.Run("this process stood still → it first reads what was said meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newKept(t, linux)
			k.look()
			k.says(sayEnded, linux)
			time.Sleep(10 * time.Second)
			k.look()
			k.wantRecord(linux, true)
			time.Sleep(endedRound)
			k.look()
			k.says(sayCame, linux)
			time.Sleep(endedRound)
			k.look()
			k.wantRecord(linux, true)
		})
	})
	t.Run("all ends in that moment → there is one again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newKept(t, linux)
			k.says(sayEnded, linux)
			time.Sleep(endedSettle)
			k.look()
			k.wantRecord(linux, false)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			k.says(sayCame, linux)
			<-k.returned // as if it was not seen
			k.Run(ctx)
			k.wantRecord(linux, true)
		})
	})
	t.Run("it cannot be made → it is tried again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			k := newKept(t, linux)
			k.says(sayEnded, linux)
			time.Sleep(endedSettle)
			k.look()
			blocked := filepath.Join(k.in, "file")
			require.NoError(t, os.WriteFile(blocked, nil, 0o600))
			k.clients[linux].from = []string{blocked} // a directory in a file: ENOTDIR
			k.says(sayCame, linux)
			k.makeAgain()
			k.clients[linux].from = []string{k.in}
			k.makeAgain()
			k.wantRecord(linux, true)
			assert.Empty(t, k.clients)
		})
	})
}

func TestARecordGoesFromEachDirectory(t *testing.T) {
	k := newKept(t, linux)
	next := filepath.Join(k.records, "node0.ghijkl", linux)
	beside := filepath.Join(k.records, "beside", linux)
	for _, dir := range []string{next, beside} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	assert.ElementsMatch(t, []string{k.in, filepath.Dir(next)}, k.remove(linux))
	assert.NoDirExists(t, next)
	assert.DirExists(t, beside, "it is nobody's directory of records")

	require.NoError(t, k.makeRecord(linux, []string{k.in, filepath.Join(k.records, "node0.gone")}))
	k.wantRecord(linux, true)
	assert.NoDirExists(t, filepath.Join(k.records, "node0.gone"))
	require.NoError(t, os.WriteFile(filepath.Join(k.in, linux, "file"), nil, 0o600))
	assert.Empty(t, k.remove(linux), "what is in it is no one's to remove")
	k.wantRecord(linux, true)
}

func TestDeparturesAreBounded(t *testing.T) {
	k := newKept(t)
	for i := range maxRecords + 10 {
		k.says(sayEnded, fmt.Sprintf("::ffff:169.254.99.1-(1:%d)", i))
	}
	assert.Len(t, k.clients, maxRecords)
}
