//go:build deps

package deps

import (
	_ "github.com/container-storage-interface/spec/lib/go/csi"
	_ "github.com/google/uuid"
	_ "github.com/hanwen/go-fuse/v2/fs"
	_ "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	_ "github.com/kubernetes-csi/external-attacher/v4/pkg/attacher"
	_ "github.com/kubernetes-csi/external-attacher/v4/pkg/controller"
	_ "github.com/moby/sys/mountinfo"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/sirupsen/logrus"
	_ "github.com/urfave/cli/v3"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	_ "k8s.io/mount-utils"
	_ "k8s.io/utils/clock/testing"
	_ "k8s.io/utils/exec"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	_ "sigs.k8s.io/yaml"
)
