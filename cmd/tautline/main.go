// Command tautline is an eBPF-accelerated L7 routing agent for LLM inference servers.
package main

func main() {}
