package app

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// followLogLevel makes a log follow the setting log-level until ctx ends. While the setting has its default, the log
// has the level that it had before the call. The datastore must watch settings.
func followLogLevel(ctx context.Context, store *datastore.Datastore, log *logrus.Logger) error {
	flag := log.GetLevel()
	stop, err := store.OnChange(func() { log.SetLevel(logLevel(store.Setting(settings.LogLevel), flag)) }, datastore.Settings)
	if err != nil {
		return err
	}
	defer stop()
	<-ctx.Done()
	return nil
}

// logLevel returns the level for a value of the setting; flag is the level of the program's flag, which applies if the
// setting has its default.
func logLevel(value string, flag logrus.Level) logrus.Level {
	d, _ := settings.DefinitionOf(settings.LogLevel)
	level, err := logrus.ParseLevel(value)
	if err != nil || value == d.Default {
		return flag
	}
	return level
}
