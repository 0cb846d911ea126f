// Package setting manages the Setting objects. Every setting with an effect has an object, so that users find it,
// and its status shows the value in force. An invalid value is never in force: all readers use the last valid one,
// or the default (types.ValueInForce).
//
// It copies values from the ConfigMap longhorn-default-setting to settings, once for each version of the ConfigMap.
// A value that a user sets afterwards stays until the ConfigMap changes again.
//
// Some settings apply to new pods. The status of such a setting names the pods that were created with another value:
// they continue to serve, and are replaced when they serve nothing.
//
// An object with a name that this release does not know gets a status, and nothing else.
//
// The package must not know which components read settings.
package setting
