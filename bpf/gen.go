// Package bpf holds the kernel side of the splice and its generated Go view.
//
// The sources are C: tautline.c is the only translation unit, include/abi.h
// holds everything that Go sees. The generated files are committed; rebuild them
// with go generate after a change (clang and llvm-strip, version 14 or newer,
// and the kernel's UAPI headers are needed for that and for nothing else).
package bpf

//go:generate go tool bpf2go -tags linux -target bpfel -output-stem tautline -cflags "-O2 -g -Wall -Wextra -Werror -Iheaders -Iinclude -mcpu=v3" -type arm_mode -type flow_state -type reason -type claim -type announcement -type first_token -type usage_end Tautline tautline.c
