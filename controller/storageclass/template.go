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

// The template is not watched. templateInterval is how often it is looked at, templateAwaited how often
// where there is no ConfigMap: the manifest may be on its way. A new release's leader looks at once.
const (
	templateInterval = 10 * time.Minute
	templateAwaited  = 30 * time.Second
)

// fromTemplate compares the ConfigMap, nil where there is none, with the template, nil where there is
// none, and returns the ConfigMap as it is to be written; nil: it stays as it is.
//
//	ConfigMap                                      template        what happens
//	none                                           there           made
//	made from the template, and not changed since  another text    gets that
//	made from the template, and changed since      any             stays
//	made by people, or by an earlier manifest      any             stays
//	any                                            none            stays
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

// isUnchanged tells whether a ConfigMap has the text that the manager gave it.
func isUnchanged(cm *corev1.ConfigMap) bool {
	return cm.Annotations[types.AnnotationTemplate] == sum(cm.Data[types.StorageClassKey])
}

func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

// config returns the ConfigMap, after it was made from the template or brought to it where that is
// due; nil: there is none. With an error it is the one that stays because it could not be brought there.
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
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // as with the manifest of an earlier release
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
		return present, err // one that exists, or has changed, is one that the cache does not show yet
	}
	queue.Log(ctx).WithField(logfields.Key, name).Info("Wrote the ConfigMap of the StorageClass from its template")
	return stored, nil
}
