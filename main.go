// Command longhorn-manager is the one program of this project; what it does is its first argument.
package main

import (
	"os"

	"github.com/longhorn-lep/longhorn-manager/app"
)

func main() { os.Exit(app.Main(os.Args)) }
