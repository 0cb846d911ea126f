package v1beta2

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Bytes is a size in bytes that travels as a JSON string, as Longhorn's clients expect
// of volume sizes: "10737418240".
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Pattern=`^-?[0-9]+$`
// +kubebuilder:validation:MaxLength=20
type Bytes int64

// MarshalJSON writes the decimal number as a string.
func (b Bytes) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(b), 10))
}

// UnmarshalJSON reads a decimal string; "" is 0. Numbers are accepted too.
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
