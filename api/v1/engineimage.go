package v1

// EngineImageReady is the type of an engine image's condition.
const EngineImageReady = "ready"

// EngineImage is the only engine image, for all nodes. Longhorn has several, and its clients check whether the
// one that they use is deployed.
type EngineImage struct {
	Resource
	Name  string `json:"name"`
	Image string `json:"image"`
	// Default and Incompatible are always true and false, and State is always deployed.
	Default      bool   `json:"default"`
	Incompatible bool   `json:"incompatible"`
	State        string `json:"state"`
	// RefCount is how many volumes there are.
	RefCount int `json:"refCount"`
	// NodeDeploymentMap has an entry true for each node.
	NodeDeploymentMap map[string]bool `json:"nodeDeploymentMap"`
	// Conditions has one entry, EngineImageReady, which is always True.
	Conditions []Condition `json:"conditions"`
	// The fields below have no meaning here, and are empty or 0.
	OwnerID                 string `json:"ownerID"`
	NoRefSince              string `json:"noRefSince"`
	Version                 string `json:"version"`
	GitCommit               string `json:"gitCommit"`
	BuildDate               string `json:"buildDate"`
	CLIAPIVersion           int    `json:"cliAPIVersion"`
	CLIAPIMinVersion        int    `json:"cliAPIMinVersion"`
	ControllerAPIVersion    int    `json:"controllerAPIVersion"`
	ControllerAPIMinVersion int    `json:"controllerAPIMinVersion"`
	DataFormatVersion       int    `json:"dataFormatVersion"`
	DataFormatMinVersion    int    `json:"dataFormatMinVersion"`
}

// Tag is a tag that a node or a disk has.
type Tag struct {
	Resource
	Name string `json:"name"`
	// TagType is node or disk.
	TagType string `json:"tagType"`
}
