package storageclass

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// The template is not watched. templateInterval is the time between reads of it. templateAwaited is that time while
// the ConfigMap is missing: the manifest may be applied soon. The leader of a new release reads it at once.
const (
	templateInterval = 10 * time.Minute
	templateAwaited  = 30 * time.Second
)

// fromTemplate compares the ConfigMap with the template; each is nil if it does not exist. It returns the ConfigMap
// to be written; nil: the ConfigMap stays unchanged.
//
//	ConfigMap                                           template        result
//	none                                                exists          created
//	created from the template, and not changed since    another text    gets the text
//	created from the template, and changed since        any             stays
//	created by a user, or by an earlier manifest        any             stays
//	any                                                 none            stays
func fromTemplate(template, present *corev1.ConfigMap) *corev1.ConfigMap {
	if template == nil || strings.TrimSpace(template.Data[types.StorageClassKey]) == "" {
		return nil
	}
	text := template.Data[types.StorageClassKey]
	if present == nil {
		next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: template.Namespace, Name: types.StorageClassConfigMap,
			Labels:      map[string]string{types.InstallationLabel: types.InstallationValue},
			Annotations: map[string]string{types.AnnotationTemplate: sum(text)},
		}}
		next.Data = map[string]string{types.StorageClassKey: text}
		return next
	}
	if present.DeletionTimestamp != nil || !isUnchanged(present) || present.Data[types.StorageClassKey] == text {
		return nil
	}
	next := present.DeepCopy()
	next.Data[types.StorageClassKey] = text
	next.Annotations[types.AnnotationTemplate] = sum(text)
	return next
}

// isUnchanged reports whether a ConfigMap has the text that the manager wrote.
func isUnchanged(cm *corev1.ConfigMap) bool {
	return cm.Annotations[types.AnnotationTemplate] == sum(cm.Data[types.StorageClassKey])
}

func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

// config returns the ConfigMap, after creating it from the template or updating it to the template if required; nil:
// there is none. With an error, it returns the ConfigMap that stays because the write failed.
func (c *Controller) config(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	present, err := c.deps.ConfigMap.GetRO(name)
	if apierrors.IsNotFound(err) {
		present, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if present != nil && !isUnchanged(present) {
		return present, nil
	}
	template, err := c.deps.ConfigMap.Live(ctx, types.StorageClassTemplate)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // with the manifest of an earlier release
		return present, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the template of the StorageClass: %w", err)
	}
	next := fromTemplate(template, present)
	if next == nil {
		return present, nil
	}
	write := c.deps.ConfigMap.Update
	if present == nil {
		write = c.deps.ConfigMap.Create
	}
	stored, err := write(ctx, next)
	if err != nil {
		return present, err // if it exists or has changed, the cache does not show that yet
	}
	queue.Log(ctx).WithField(logfields.Key, name).Info("Wrote the ConfigMap of the StorageClass from its template")
	return stored, nil
}
