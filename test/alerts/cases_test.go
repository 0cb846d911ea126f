package alerts

import "time"

// alertCase is a history of series, and the alerts that fire at a time. The series have the form of promtool: a value,
// how much it changes each time, and how often (1x20, 5+1x20). They have a value for each minute from 0. An empty want
// means that nothing fires.
type alertCase struct {
	alert, name string
	series      []string
	at          time.Duration
	want        []string
}

// vol are the labels of a volume. onOther are the labels of the same volume in the metrics of another daemon, attached
// to another node.
const (
	vol     = `volume="v1",pvc="data",pvc_namespace="shop",instance="a",node="n1"`
	onOther = `volume="v1",pvc="data",pvc_namespace="shop",instance="b",node="n2"`
)

var ofVol = []string{"pvc=data pvc_namespace=shop volume=v1"}

var cases = []alertCase{
	{
		"LonghornVolumeFaulted", "faulted, on one node and then on none → once", []string{
			`longhorn_volume_robustness{` + vol + `,state="faulted"} 1x2`,
			`longhorn_volume_robustness{` + onOther + `,state="faulted"} _x2 1x20`,
		}, 4 * time.Minute, ofVol,
	},
	{"LonghornVolumeFaulted", "degraded", []string{
		`longhorn_volume_robustness{` + vol + `,state="faulted"} 0x20`, `longhorn_volume_robustness{` + vol + `,state="degraded"} 1x20`,
	}, 10 * time.Minute, nil},

	{"LonghornVolumeDegraded", "degraded for 70 minutes", []string{
		`longhorn_volume_robustness{` + vol + `,state="degraded"} 1x80`, `longhorn_volume_degraded_since_timestamp_seconds{` + vol + `} 0x80`,
	}, 70 * time.Minute, ofVol},
	{"LonghornVolumeDegraded", "degraded for half an hour", []string{
		`longhorn_volume_robustness{` + vol + `,state="degraded"} 1x80`, `longhorn_volume_degraded_since_timestamp_seconds{` + vol + `} 2400x80`,
	}, 70 * time.Minute, nil},
	{"LonghornVolumeDegraded", "detached meanwhile", []string{
		`longhorn_volume_robustness{` + vol + `,state="degraded"} 0x80`, `longhorn_volume_degraded_since_timestamp_seconds{` + vol + `} 0x80`,
	}, 70 * time.Minute, nil},

	{"LonghornVolumeCopiesMissing", "for seven hours", []string{`longhorn_volume_status{` + vol + `,condition="copiesmissing"} 1x420`}, 7 * time.Hour, ofVol},
	{"LonghornVolumeCopiesMissing", "for an hour", []string{`longhorn_volume_status{` + vol + `,condition="copiesmissing"} 1x60`}, time.Hour, nil},

	{"LonghornVolumeCopiesUnreachable", "for five minutes", []string{`longhorn_volume_status{` + vol + `,condition="copiesunreachable"} 1x10`}, 5 * time.Minute, ofVol},
	{"LonghornVolumeCopiesUnreachable", "a node came back within a minute", []string{`longhorn_volume_status{` + vol + `,condition="copiesunreachable"} 1 0x10`}, 5 * time.Minute, nil},
	{"LonghornVolumeCopiesUnreachable", "copies are missing, and others can be reached", []string{`longhorn_volume_status{` + vol + `,condition="copiesmissing"} 1x10`}, 5 * time.Minute, nil},

	{
		"LonghornVolumeNotScheduled", "no place for a quarter of an hour",
		[]string{`longhorn_volume_status{` + vol + `,condition="scheduled",condition_reason="ReplicaSchedulingFailure"} 0x30`},
		20 * time.Minute,
		[]string{"condition_reason=ReplicaSchedulingFailure pvc=data pvc_namespace=shop volume=v1"},
	},
	{"LonghornVolumeNotScheduled", "a place was found", []string{
		`longhorn_volume_status{` + vol + `,condition="scheduled",condition_reason="ReplicaSchedulingFailure"} 0x10 stale`,
		`longhorn_volume_status{` + vol + `,condition="scheduled",condition_reason=""} _x10 1x20`,
	}, 20 * time.Minute, nil},

	{"LonghornVolumeAttachingLong", "for 20 minutes", []string{`longhorn_volume_state{` + vol + `,state="attaching"} 1x30`}, 20 * time.Minute, ofVol},
	{"LonghornVolumeAttachingLong", "again and again", []string{`longhorn_volume_state{` + vol + `,state="attaching"} 1x10 0 1x10`}, 20 * time.Minute, nil},

	{"LonghornVolumeObjectRefused", "refused", []string{`longhorn_volume_status{` + vol + `,condition="childrefused"} 1x20`}, 15 * time.Minute, ofVol},
	{"LonghornVolumeObjectRefused", "not any more", []string{`longhorn_volume_status{` + vol + `,condition="childrefused"} 1x5 0x20`}, 15 * time.Minute, nil},

	{
		"LonghornVolumeFileSystemReadOnly", "read-only for five minutes",
		[]string{`longhorn_volume_file_system_read_only{volume="v1",node="n1",instance="a"} 1x10`},
		5 * time.Minute,
		[]string{"node=n1 volume=v1"},
	},
	{"LonghornVolumeFileSystemReadOnly", "it can be written", []string{`longhorn_volume_file_system_read_only{volume="v1",node="n1"} 0x10`}, 5 * time.Minute, nil},
	{"LonghornVolumeFileSystemReadOnly", "it was, and is mounted no more", []string{`longhorn_volume_file_system_read_only{volume="v1",node="n1"} 1 stale`}, 5 * time.Minute, nil},

	{
		"LonghornVolumeSlow", "two seconds a write for a quarter of an hour",
		[]string{`longhorn_volume_write_latency{volume="v1",node="n1"} 2000000000x20`},
		15 * time.Minute,
		[]string{"node=n1 volume=v1"},
	},
	{"LonghornVolumeSlow", "half a second", []string{`longhorn_volume_write_latency{volume="v1",node="n1"} 500000000x20`}, 15 * time.Minute, nil},
	{"LonghornVolumeSlow", "for five minutes", []string{`longhorn_volume_write_latency{volume="v1",node="n1"} 2000000000x5 1000000x20`}, 15 * time.Minute, nil},

	{
		"LonghornRebuildStuck", "no percent in 70 minutes",
		[]string{`longhorn_engine_rebuild_progress{engine="e1",node="n1",rebuild_dst="r1",pvc="data"} 42x80`},
		70 * time.Minute,
		[]string{"engine=e1 node=n1 rebuild_dst=r1"},
	},
	{"LonghornRebuildStuck", "a percent every 25 minutes", []string{
		`longhorn_engine_rebuild_progress{engine="e1",node="n1",rebuild_dst="r1"} 42x24 43x24 44x24 45x24`,
	}, 90 * time.Minute, nil},
	{"LonghornRebuildStuck", "it ended", []string{
		`longhorn_engine_rebuild_progress{engine="e1",node="n1",rebuild_dst="r1"} 42x24 stale`,
	}, 90 * time.Minute, nil},

	{
		"LonghornShareNotRunning", "an error, then starting again on another node", []string{
			`longhorn_share_manager_state{share_manager="v1",node="n1",state="error"} 1x6 stale`,
			`longhorn_share_manager_state{share_manager="v1",node="n2",state="starting"} _x6 1x20`,
		}, 15 * time.Minute, []string{"share_manager=v1"},
	},
	{"LonghornShareNotRunning", "nobody uses it", []string{`longhorn_share_manager_state{share_manager="v1",state="stopped"} 1x20`}, 15 * time.Minute, nil},

	{"LonghornNodeNotReady", "down", []string{`longhorn_node_ready{node="n1"} 0x20`, `longhorn_node_ready{node="n2"} 1x20`}, 10 * time.Minute, []string{"node=n1"}},
	{"LonghornNodeNotReady", "for a moment", []string{`longhorn_node_ready{node="n1"} 0x3 1x20`}, 10 * time.Minute, nil},

	{"LonghornDaemonAbsent", "one of two is not scraped", []string{
		`longhorn_node_ready{node="n1"} 1x20`, `longhorn_node_ready{node="n2"} 1x20`, `longhorn_manager_leader{node="n1",manager="m1"} 1x20`,
	}, 15 * time.Minute, []string{"node=n2"}},
	{"LonghornDaemonAbsent", "all are", []string{
		`longhorn_node_ready{node="n1"} 1x20`, `longhorn_node_ready{node="n2"} 1x20`,
		`longhorn_manager_leader{node="n1",manager="m1"} 1x20`, `longhorn_manager_leader{node="n2",manager="m2"} 0x20`,
	}, 15 * time.Minute, nil},

	{
		"LonghornDiskNotReady", "it does not answer",
		[]string{`longhorn_disk_status{node="n1",disk="d1",condition="ready",condition_reason="DiskNotResponding"} 0x20`},
		10 * time.Minute,
		[]string{"condition_reason=DiskNotResponding disk=d1 node=n1"},
	},
	{"LonghornDiskNotReady", "it is full, and ready", []string{
		`longhorn_disk_status{node="n1",disk="d1",condition="ready",condition_reason=""} 1x20`,
		`longhorn_disk_status{node="n1",disk="d1",condition="schedulable",condition_reason="DiskPressure"} 0x20`,
	}, 10 * time.Minute, nil},

	{"LonghornDiskAlmostFull", "91 %", []string{
		`longhorn_disk_usage_bytes{node="n1",disk="d1"} 91x20`, `longhorn_disk_capacity_bytes{node="n1",disk="d1"} 100x20`,
	}, 15 * time.Minute, []string{"disk=d1 node=n1"}},
	{"LonghornDiskAlmostFull", "90 %", []string{
		`longhorn_disk_usage_bytes{node="n1",disk="d1"} 90x20`, `longhorn_disk_capacity_bytes{node="n1",disk="d1"} 100x20`,
	}, 15 * time.Minute, nil},

	{"LonghornNoDiskSchedulable", "neither of two", []string{
		`longhorn_disk_status{node="n1",disk="d1",condition="schedulable"} 0x20`, `longhorn_disk_status{node="n2",disk="d1",condition="schedulable"} 0x20`,
	}, 15 * time.Minute, []string{""}},
	{"LonghornNoDiskSchedulable", "one of two", []string{
		`longhorn_disk_status{node="n1",disk="d1",condition="schedulable"} 0x20`, `longhorn_disk_status{node="n2",disk="d1",condition="schedulable"} 1x20`,
	}, 15 * time.Minute, nil},

	{
		"LonghornNodeAnnotationRefused", "disks that break a rule",
		[]string{`longhorn_node_status{node="n1",condition="defaultdisksconfig",condition_reason="DefaultDisksConfigInvalid"} 0x20`},
		10 * time.Minute,
		[]string{"condition=defaultdisksconfig condition_reason=DefaultDisksConfigInvalid node=n1"},
	},
	{"LonghornNodeAnnotationRefused", "another condition", []string{
		`longhorn_node_status{node="n1",condition="ready",condition_reason="x"} 0x20`,
	}, 10 * time.Minute, nil},

	{
		"LonghornKernelNBDClientNotUsed", "not used",
		[]string{`longhorn_node_status{node="n1",condition="kernelnbdclient",condition_reason="KernelNBDClientNotUsed"} 0x80`},
		70 * time.Minute,
		[]string{"node=n1"},
	},
	{"LonghornKernelNBDClientNotUsed", "used", []string{`longhorn_node_status{node="n1",condition="kernelnbdclient"} 1x80`}, 70 * time.Minute, nil},

	{"LonghornNodeCPUBusy", "96 % for 40 minutes", []string{
		`longhorn_node_cpu_usage_millicpu{node="n1"} 1920x60`, `longhorn_node_cpu_capacity_millicpu{node="n1"} 2000x60`,
	}, 40 * time.Minute, []string{"node=n1"}},
	{"LonghornNodeCPUBusy", "now and then", []string{
		`longhorn_node_cpu_usage_millicpu{node="n1"} 1920x20 100 1920x20`, `longhorn_node_cpu_capacity_millicpu{node="n1"} 2000x60`,
	}, 40 * time.Minute, nil},

	{
		"LonghornInstanceManagerNotRunning", "an error",
		[]string{`longhorn_instance_manager_state{node="n1",instance_manager="im",type="aio",state="error"} 1x20`},
		10 * time.Minute,
		[]string{"instance_manager=im node=n1 state=error"},
	},
	{"LonghornInstanceManagerNotRunning", "it runs", []string{
		`longhorn_instance_manager_state{node="n1",instance_manager="im",type="aio",state="running"} 1x20`,
	}, 10 * time.Minute, nil},

	{"LonghornInstanceManagerRestarts", "four processes in an hour", []string{
		`longhorn_instance_manager_info{node="n1",instance_manager="im",process="a"} 1x5`,
		`longhorn_instance_manager_info{node="n1",instance_manager="im",process="b"} _x6 1x5`,
		`longhorn_instance_manager_info{node="n1",instance_manager="im",process="c"} _x12 1x5`,
		`longhorn_instance_manager_info{node="n1",instance_manager="im",process="d"} _x18 1x30`,
	}, 30 * time.Minute, []string{"instance_manager=im node=n1"}},
	{"LonghornInstanceManagerRestarts", "a new version", []string{
		`longhorn_instance_manager_info{node="n1",instance_manager="im",process="a"} 1x5`,
		`longhorn_instance_manager_info{node="n1",instance_manager="im",process="b"} _x6 1x30`,
	}, 30 * time.Minute, nil},

	{"LonghornNoLeader", "nobody says how many nodes there are", []string{`longhorn_manager_leader{node="n1"} 0x20`}, 10 * time.Minute, []string{""}},
	{"LonghornNoLeader", "one leads", []string{`longhorn_node_count_total 3x20`}, 10 * time.Minute, nil},

	{"LonghornDaemonCPUBusy", "two CPUs for 40 minutes", []string{`longhorn_manager_cpu_usage_millicpu{node="n1",manager="m1"} 2000x60`}, 40 * time.Minute, []string{"node=n1"}},
	{"LonghornDaemonCPUBusy", "half a CPU", []string{`longhorn_manager_cpu_usage_millicpu{node="n1",manager="m1"} 500x60`}, 40 * time.Minute, nil},

	{"LonghornControllerFails", "two of three", []string{
		`longhorn_controller_syncs_total{controller="volume",outcome="failed",pod="a"} 0+2x60`, `longhorn_controller_syncs_total{controller="volume",outcome="done",pod="a"} 0+1x60`,
	}, 40 * time.Minute, []string{"controller=volume"}},
	{"LonghornControllerFails", "one of three", []string{
		`longhorn_controller_syncs_total{controller="volume",outcome="failed",pod="a"} 0+1x60`, `longhorn_controller_syncs_total{controller="volume",outcome="done",pod="a"} 0+2x60`,
	}, 40 * time.Minute, nil},

	{"LonghornSettingNotApplied", "refused", []string{`longhorn_setting_applied{setting="default-replica-count"} 0x60`}, 40 * time.Minute, []string{"setting=default-replica-count"}},
	{"LonghornSettingNotApplied", "applied", []string{`longhorn_setting_applied{setting="default-replica-count"} 1x60`}, 40 * time.Minute, nil},
}
