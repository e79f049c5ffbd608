package load

// Books are the load accounts of a fleet.
type Books struct{}
