package datastore

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// OnChange calls changed after each change of the caches of these kinds, and once for each object that they already
// contain, until stop is called. The calls come from separate goroutines and must return at once. A kind that is not
// watched never changes.
func (d *Datastore) OnChange(changed func(), kinds ...Kind) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, kind := range kinds {
		informer, ok := d.informers[kind]
		if !ok {
			continue
		}
		end, err := onChange(informer, changed)
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch %s for changes: %w", kind, err)
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// OnChange is Datastore.OnChange for the PersistentVolumes.
func (w *Workloads) OnChange(changed func()) (stop func(), err error) {
	stop, err = onChange(w.informer, changed)
	if err != nil {
		return nil, fmt.Errorf("watch persistent volumes for changes: %w", err)
	}
	return stop, nil
}

func onChange(informer cache.SharedIndexInformer, changed func()) (stop func(), err error) {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, err
	}
	// It fails only for a registration that is not the informer's own.
	return func() { _ = informer.RemoveEventHandler(registration) }, nil
}
