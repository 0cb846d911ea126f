package v1beta2

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Bytes is a size in bytes. In JSON it is a string, such as "10737418240", because Longhorn's clients expect volume
// sizes as strings.
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Pattern=`^-?[0-9]+$`
// +kubebuilder:validation:MaxLength=20
type Bytes int64

// MarshalJSON writes the decimal number as a string.
func (b Bytes) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(b), 10))
}

// UnmarshalJSON reads a decimal string. It reads "" and null as 0, and also accepts a number.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	if text == "" || text == "null" {
		*b = 0
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("size in bytes %q: %w", text, err)
	}
	*b = Bytes(n)
	return nil
}
