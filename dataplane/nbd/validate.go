package nbd

// limits is the information about an export and its negotiation that validate needs to check a request.
type limits struct {
	size        uint64
	readOnly    bool
	blockMin    uint32 // bytes; a power of two
	maxPayload  uint32 // bytes
	structured  bool
	blockStatus bool // base:allocation was selected for this export
	control     bool // the private command is offered
}

func (e *Export) limits(structured, blockStatus bool) limits {
	bs := e.BlockSize.withDefaults()
	_, control := e.Backend.(Controller)
	return limits{
		size: uint64(e.Size), readOnly: e.ReadOnly, blockMin: bs.Min, maxPayload: bs.Max,
		structured: structured, blockStatus: structured && blockStatus,
		control: control && structured && !e.ReadOnly,
	}
}

// validate checks a request before anything is allocated for it. Nil means that a Backend may be called with it. The
// error numbers are those of the specification: EPERM on a read-only export, ENOSPC for writing past the end, otherwise
// EINVAL.
func validate(r request, l limits) *Error {
	allowed := cmdFlagFUA // valid on every command, even without meaning
	switch r.Type {
	case cmdRead:
		if l.structured {
			allowed |= cmdFlagDF
		}
	case cmdWriteZeroes:
		if r.Flags&cmdFlagFastZero != 0 {
			return errorf(ENOTSUP, "fast zero is not offered")
		}
		allowed |= cmdFlagNoHole
	case cmdBlockStatus:
		if !l.blockStatus {
			return errorf(EINVAL, "block status requires the metadata context %s", contextAllocation)
		}
		allowed |= cmdFlagReqOne
	case cmdControl:
		return validateControl(r, l)
	case cmdWrite, cmdTrim, cmdFlush:
	default:
		return errorf(EINVAL, "%s is not offered", r.Type)
	}
	if r.Flags&^allowed != 0 {
		return errorf(EINVAL, "%s does not allow the flags %#x", r.Type, r.Flags)
	}
	if r.Type == cmdFlush {
		if r.Offset != 0 || r.Length != 0 {
			return errorf(EINVAL, "flush must not have a range")
		}
		return nil
	}
	return validateRange(r, l)
}

func validateRange(r request, l limits) *Error {
	changes := r.Type == cmdWrite || r.Type == cmdTrim || r.Type == cmdWriteZeroes
	if changes && l.readOnly {
		return errorf(EPERM, "%s is not allowed: the export is read-only", r.Type)
	}
	if r.Length == 0 {
		return errorf(EINVAL, "the length of a %s must not be 0", r.Type)
	}
	if (r.Type == cmdRead || r.Type == cmdWrite) && r.Length > l.maxPayload {
		return errorf(EINVAL, "%s of %d bytes exceeds the maximum of %d", r.Type, r.Length, l.maxPayload)
	}
	if r.Offset > l.size || uint64(r.Length) > l.size-r.Offset {
		no := EINVAL
		if r.Type == cmdWrite || r.Type == cmdWriteZeroes {
			no = ENOSPC
		}
		return errorf(no, "%s of %d bytes at offset %d exceeds the size of %d bytes", r.Type, r.Length, r.Offset, l.size)
	}
	if mask := uint64(l.blockMin) - 1; (r.Offset|uint64(r.Length))&mask != 0 {
		return errorf(EINVAL, "%s of %d bytes at offset %d is not aligned to %d bytes", r.Type, r.Length, r.Offset, l.blockMin)
	}
	return nil
}
