package ganesha

import (
	"strings"
	"text/template"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// squashWords are Ganesha's words for the values of Squash.
var squashWords = map[types.NFSSquash]string{types.NFSSquashNone: "No_Root_Squash", types.NFSSquashRoot: "Root_Squash", types.NFSSquashAll: "All_Squash"}

// configuration is the file that Ganesha reads. Reasons for its content:
//
//   - Versions other than NFSv4, the lock manager, quotas and UDP would each open a port.
//   - No lists of clients: all come from one address (package firewall).
//   - Numeric owners: there is no user database here, and AUTH_SYS sends numbers anyway.
//   - The anonymous user is 65534, as on Linux; Ganesha's own choice is 4294967294, which has no name.
//   - Expired clients are removed: their locks are free at the end of the lease, and their records are deleted.
//   - Allow_Set_Io_Flusher_Fail: Ganesha asks the kernel not to wait for its own writes when memory is short, which
//     needs CAP_SYS_RESOURCE. Without this capability, it serves nevertheless.
//   - MDCACHE: an entry takes about 3 KiB. Above the high-water mark a new entry replaces an old one, if one of the few
//     candidates is free. With 60 files being created they often are not. So the entries above the mark are freed every
//     10 s, and not 100 of them every 90 s. The low-water mark must not be above the high one.
//   - Logging: warnings, and events about grace periods. At each start, DBUS, DISP, INIT and NFS_CB complain that there
//     is no message bus, no port mapper and no Kerberos, which are not wanted. TIRPC complains about each client that
//     closes its connection. The lines of CLIENTID about clients that come and leave are for the graceWaker (wake.go),
//     and are not shown. They contain addresses as clients write them, so each line starts with a mark that clients do
//     not know.
var configuration = template.Must(template.New("ganesha.conf").Funcs(template.FuncMap{
	"seconds": func(d time.Duration) int64 { return int64(d / time.Second) },
}).Parse(`NFS_CORE_PARAM {
	NFS_Port = {{.NFSPort}};
	Protocols = 4;
	Enable_NLM = false;
	Enable_RQUOTA = false;
	Enable_UDP = false;
	fsid_device = false;
	Enable_NFS_Stats = false;
	Allow_Set_Io_Flusher_Fail = true;
}

NFSv4 {
	Minor_Versions = 0, 1, 2;
	Lease_Lifetime = {{seconds .Lease}};
	Grace_Period = {{seconds .Grace}};
	RecoveryBackend = fs_ng;
	RecoveryRoot = "{{.Recovery}}";
	Only_Numeric_Owners = true;
	Delegations = false;
	Expired_Client_Threshold = 0;
}

NFS_KRB5 {
	Active_krb5 = false;
}

EXPORT_DEFAULTS {
	Anonymous_Uid = 65534;
	Anonymous_Gid = 65534;
}

MDCACHE {
	Entries_HWMark = 20000;
	Entries_Release_Size = 20000;
	LRU_Run_Interval = 10;
	Chunks_HWMark = 500;
	Chunks_LWMark = 500;
}

LOG {
	Default_Log_Level = WARN;
	Format {
		Date_Format = user_defined;
		User_Date_Format = "{{.Mark}} %d/%m/%Y";
		File_Name = false;
		Line_Num = false;
	}
	Components {
		STATE = EVENT;
		CLIENTID = DEBUG;
		RECOVERY = EVENT;
		DBUS = FATAL;
		DISP = FATAL;
		NFS_CB = FATAL;
		INIT = CRIT;
		TIRPC = CRIT;
	}
}

EXPORT {
	Export_Id = 1;
	Path = "{{.Path}}";
	Pseudo = "/{{.Volume}}";
	Protocols = 4;
	Transports = TCP;
	SecType = sys;
	Squash = {{.Squash}};
	Access_Type = {{.Access}};
	FSAL {
		Name = VFS;
	}
}
{{if .Cover}}
EXPORT {
	Export_Id = 2;
	Path = "{{.Path}}/{{.Recovery_}}";
	Pseudo = "/{{.Volume}}/{{.Recovery_}}";
	Protocols = 4;
	Transports = TCP;
	SecType = sys;
	Squash = {{.Squash}};
	Access_Type = {{.Cover}};
	FSAL {
		Name = VFS;
	}
}
{{end}}`))

// CoverAccess is the access of clients to the empty directory that is mounted over the recovery directory.
type CoverAccess string

const (
	CoverNone    CoverAccess = ""     // none is mounted
	CoverHidden  CoverAccess = "NONE" // clients do not see it
	CoverVisible CoverAccess = "RW"   // it has content that clients may want to delete
)

// Config is the input with which a server starts.
type Config struct {
	// Volume is the name under which clients mount the share. Path is the place of its file system.
	Volume, Path string
	Port         int
	Squash       types.NFSSquash
	// ReadOnly: clients only read.
	ReadOnly bool
	// Lease is how long a client's state lives without a sign of life. Grace is how long clients have to claim their
	// state after the server has restarted.
	Lease, Grace time.Duration
	// Recovery is the directory where Ganesha stores what it must know about its clients after a restart.
	Recovery string
	Cover    CoverAccess
	// Mark is the start of the server's own lines in the log. No client may know it.
	Mark string
	// Epoch is the server's epoch, from Epochs.
	Epoch uint32
	// File is where the configuration is written, as Text returns it. PIDFile is where the number of the process is
	// written.
	File, PIDFile string
	// Program is the NFS server. WakeLibrary is preloaded into it, if the file exists.
	Program, WakeLibrary string
	// Listener is the port that the server uses if the library is preloaded; nil: it opens the port itself.
	Listener *Listener
	Log      *logrus.Entry
}

// Text is the text of Ganesha's configuration file.
func (c Config) Text() string {
	access := "RW"
	if c.ReadOnly {
		access = "RO"
	}
	var text strings.Builder
	err := configuration.Execute(&text, map[string]any{
		"Mark": c.Mark, "NFSPort": c.Port, "Lease": c.Lease, "Grace": c.Grace, "Recovery": c.Recovery,
		"Path": c.Path, "Volume": c.Volume, "Squash": squashWords[c.Squash], "Access": access,
		"Cover": c.Cover, "Recovery_": RecoveryName,
	})
	if err != nil {
		panic("BUG: the template of Ganesha's configuration: " + err.Error())
	}
	return text.String()
}
