package bpf

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Version is the version of the layout of the pinned maps. It names their
// directory and stands in the meta map. Raise it with every change of abi.h or
// maps.h that an older reader would misread.
const Version = 4

// Announcement is put on the agent's own sockets, see include/abi.h.
type Announcement = TautlineAnnouncement

// Arm is the agent's offer to splice, see include/abi.h.
type Arm = TautlineArm

// ArmMode says what an Arm lets pass, see include/abi.h.
type ArmMode = TautlineArmMode

// Backend is a row of the routing table, see include/abi.h.
type Backend = TautlineBackend

// ConnKey names a backend connection, see include/abi.h.
type ConnKey = TautlineConnKey

// Counter counts what happened for a Reason, see include/abi.h.
type Counter = TautlineCounter

// FirstToken says that the kernel has passed one, see include/abi.h.
type FirstToken = TautlineFirstToken

// Flow is the state of a backend connection, see include/abi.h.
type Flow = TautlineFlow

// FlowState is where a Flow stands, see include/abi.h.
type FlowState = TautlineFlowState

// Latency is what a CPU has counted of a backend's chunks, see include/abi.h.
type Latency = TautlineLatency

// Meta is the version of the layout, see include/abi.h.
type Meta = TautlineMeta

// Reason says what became of a socket or message, see include/abi.h.
type Reason = TautlineReason

// UsageEnd is the end of a message that may tell the usage, see include/abi.h.
type UsageEnd = TautlineUsageEnd

// States of a flow, see include/abi.h.
const (
	FlowAnnounced = TautlineFlowStateFLOW_ANNOUNCED
	FlowRefused   = TautlineFlowStateFLOW_REFUSED
	FlowPassing   = TautlineFlowStateFLOW_PASSING
	FlowSpliced   = TautlineFlowStateFLOW_SPLICED
)

// Modes of an arm, see include/abi.h.
const (
	ArmChunks = TautlineArmModeARM_CHUNKS
	ArmDeltas = TautlineArmModeARM_DELTAS
	ArmFirst  = TautlineArmModeARM_FIRST
)

// Reasons, see include/abi.h.
const (
	ClaimTaken       = TautlineReasonCLAIM_TAKEN
	ClaimMismatch    = TautlineReasonCLAIM_MISMATCH
	ClaimBusy        = TautlineReasonCLAIM_BUSY
	ClaimUnsupported = TautlineReasonCLAIM_UNSUPPORTED
	ClaimFull        = TautlineReasonCLAIM_FULL
	ClaimFailed      = TautlineReasonCLAIM_FAILED
	ArmTaken         = TautlineReasonARM_TAKEN
	ArmMissed        = TautlineReasonARM_MISSED
	FirstLost        = TautlineReasonFIRST_LOST
	Redirected       = TautlineReasonREDIRECTED
	PassIdle         = TautlineReasonPASS_IDLE
	PassLast         = TautlineReasonPASS_LAST
	PassCredit       = TautlineReasonPASS_CREDIT
	PassWindow       = TautlineReasonPASS_WINDOW
	PassPartial      = TautlineReasonPASS_PARTIAL
	PassFraming      = TautlineReasonPASS_FRAMING
	PassEvent        = TautlineReasonPASS_EVENT
	PassUsage        = TautlineReasonPASS_USAGE
	PassTarget       = TautlineReasonPASS_TARGET
	PassStale        = TautlineReasonPASS_STALE
	PassBypassed     = TautlineReasonPASS_BYPASSED
	ReasonCount      = TautlineReasonREASON_COUNT
)

var reasonNames = [ReasonCount]string{
	ClaimTaken:       "claim_taken",
	ClaimMismatch:    "claim_mismatch",
	ClaimBusy:        "claim_busy",
	ClaimUnsupported: "claim_unsupported",
	ClaimFull:        "claim_full",
	ClaimFailed:      "claim_failed",
	ArmTaken:         "arm_taken",
	ArmMissed:        "arm_missed",
	FirstLost:        "first_lost",
	Redirected:       "redirected",
	PassIdle:         "pass_idle",
	PassLast:         "pass_last",
	PassCredit:       "pass_credit",
	PassWindow:       "pass_window",
	PassPartial:      "pass_partial",
	PassFraming:      "pass_framing",
	PassEvent:        "pass_event",
	PassUsage:        "pass_usage",
	PassTarget:       "pass_target",
	PassStale:        "pass_stale",
	PassBypassed:     "pass_bypassed",
}

// String returns the reason's name as used in metrics, "unknown" outside the enum.
func (r TautlineReason) String() string {
	if r >= ReasonCount {
		return "unknown"
	}
	return reasonNames[r]
}

// String returns the mode's name, "unknown" outside the enum.
func (m TautlineArmMode) String() string {
	switch m {
	case ArmChunks:
		return "chunks"
	case ArmDeltas:
		return "deltas"
	case ArmFirst:
		return "first"
	}
	return "unknown"
}

// String returns the state's name, "unknown" outside the enum.
func (s TautlineFlowState) String() string {
	switch s {
	case FlowAnnounced:
		return "announced"
	case FlowRefused:
		return "refused"
	case FlowPassing:
		return "passing"
	case FlowSpliced:
		return "spliced"
	}
	return "unknown"
}

// Pinned lists the maps that are pinned, in the order of CONTRACT: the routing
// table, the state of the connections, the sockets, the numbers, the version.
func Pinned() []string {
	return []string{
		TautlineMapBackends, TautlineMapFlows, TautlineMapArms,
		TautlineMapServerSocks, TautlineMapClientSocks,
		TautlineMapLatency, TautlineMapCounters, TautlineMapMeta,
	}
}

// Digest condenses names, types and sizes of the pinned maps of a spec. Two
// layouts of the same Version with different digests do not fit each other.
func Digest(spec *ebpf.CollectionSpec) uint64 {
	names := Pinned()
	slices.Sort(names)
	h := fnv.New64a()
	for _, name := range names {
		m := spec.Maps[name]
		if m == nil {
			continue
		}
		h.Write([]byte(name + "\x00"))
		for _, n := range []uint32{uint32(m.Type), m.KeySize, m.ValueSize, m.MaxEntries, m.Flags} {
			h.Write(binary.LittleEndian.AppendUint32(nil, n))
		}
	}
	return h.Sum64()
}

// Text returns the characters of a C string up to its terminating zero.
func Text(c []int8) string {
	var b strings.Builder
	for _, ch := range c {
		if ch == 0 {
			break
		}
		b.WriteByte(byte(ch))
	}
	return b.String()
}

// PutText writes s into a C string, cut so that a terminating zero remains.
func PutText(c []int8, s string) {
	clear(c)
	for i := 0; i < len(s) && i < len(c)-1; i++ {
		c[i] = int8(s[i])
	}
}
